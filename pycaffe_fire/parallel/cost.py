"""The cost model: seconds per iteration on p nodes, from one node's profile and the network's.

One gradient of S bytes, a network of latency a and bandwidth B (B' with both directions busy):

  server    2 (p-1) (a + S/B)                    everything through the server's link, in and out
  tree      2 ceil(log2 p) (a + S/B)             reduced upwards, broadcast downwards
  halving   2 ceil(log2 p) a + 2 (p-1)/p S/B'    recursive halving and doubling
  ring      2 (p-1) a + 2 (p-1)/p S/B'

The paper counts p for the server, whose link then sends and receives at the same time; ours serves
one bucket after the other. To that comes the time to add what arrives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..errors import SolverError
from ..registry import Registry
from .buckets import BUCKET

BUCKET_BYTES = 4 * BUCKET
BACKWARD_SHARE = 2 / 3  # of a pass: backward computes two products where forward computes one
SUM_RATE = 5e9  # bytes of gradient that a core adds to others per second


@dataclass(frozen=True)
class Network:
    """What connects the nodes: seconds, and bytes per second in each direction."""

    name: str
    latency: float
    bandwidth: float
    both_ways: float = 0.0  # bandwidth while the other direction is busy, too; 0: the same

    @property
    def duplex(self) -> float:
        return self.both_ways or self.bandwidth


def _gigabits(name: str, microseconds: float, gigabits: float) -> Network:
    """A link whose protocols leave 94 % of its rate to data."""
    return Network(name, microseconds * 1e-6, gigabits * 0.94e9 / 8)


# The latencies are those of MPI messages: over TCP for Ethernet, RDMA for InfiniBand.
# Gemini's bandwidth is what the paper's five rows show for its tree (see PAPER_ROWS); its data went
# through host memory, so it is below the link's own rate.
NETWORKS: Registry[Network] = Registry("network", SolverError)
for _network in (
    Network("gemini", 1.5e-6, 2.9e9),
    _gigabits("1gbe", 50, 1),
    _gigabits("10gbe", 25, 10),
    _gigabits("25gbe", 20, 25),
    _gigabits("100gbe", 15, 100),
    _gigabits("infiniband", 1.5, 200),
):
    NETWORKS.register(_network.name)(_network)


@dataclass(frozen=True)
class Slice:
    """A bucket of gradients: its bytes, and the share of backward after which it is complete."""

    bytes: float
    ready: float


@dataclass(frozen=True)
class Profile:
    """What one node takes for one net."""

    name: str
    gradient_bytes: float
    seconds_per_sample: float
    seconds_per_pass: float = 0.0  # whatever the batch: what small batches suffer from
    backward_share: float = BACKWARD_SHARE
    slices: tuple[Slice, ...] = field(default=(), repr=False)  # in the order of completion
    sum_rate: float = SUM_RATE

    def compute(self, samples: float) -> float:
        """Seconds of forward and backward."""
        return self.seconds_per_pass + samples * self.seconds_per_sample

    def buckets(self) -> Sequence[Slice]:
        """The measured slices, or equal ones that complete evenly during backward."""
        if self.slices:
            return self.slices
        count = max(1, math.ceil(self.gradient_bytes / BUCKET_BYTES))
        return [Slice(self.gradient_bytes / count, (i + 1) / count) for i in range(count)]


# Algorithms.


@dataclass(frozen=True)
class Traffic:
    """What an algorithm costs per bucket: steps of latency, and multiples of the bucket's bytes."""

    steps: int
    volume: float
    sums: float
    duplex: bool  # are both directions of a link busy at once?
    pipelined: bool  # do the next bucket's messages travel while this one's are waited for?


def traffic(algorithm: str, p: int) -> Traffic:
    """The formulas above for p > 1 nodes."""
    levels = math.ceil(math.log2(p))
    share = (p - 1) / p
    if algorithm == "server":
        return Traffic(2 * (p - 1), 2 * (p - 1), p - 1, False, False)
    if algorithm == "tree":
        return Traffic(2 * levels, 2 * levels, levels, False, False)
    if algorithm == "halving":
        return Traffic(2 * levels, 2 * share, share, True, True)
    if algorithm == "ring":
        return Traffic(2 * (p - 1), 2 * share, share, True, True)
    raise SolverError(f'unknown algorithm "{algorithm}"; known: {", ".join(ALGORITHMS)}')


ALGORITHMS = ("server", "tree", "halving", "ring")


# Predictions.


@dataclass(frozen=True)
class Iteration:
    """Predicted seconds of one iteration; `exposed` is the communication nothing hides."""

    compute: float
    communication: float
    exposed: float

    @property
    def total(self) -> float:
        return self.compute + self.exposed


def iteration(
    profile: Profile, network: Network, algorithm: str, p: int, samples: float,
    overlap: bool = True,
) -> Iteration:  # fmt: skip
    """One iteration on p nodes with `samples` samples on each."""
    compute = profile.compute(samples)
    if p == 1:
        return Iteration(compute, 0.0, 0.0)
    backward = compute * profile.backward_share
    busy = _finish(profile, network, traffic(algorithm, p), 0.0)
    end = _finish(profile, network, traffic(algorithm, p), backward) if overlap else backward + busy
    return Iteration(compute, busy, max(0.0, end - backward))


def _finish(profile: Profile, network: Network, cost: Traffic, backward: float) -> float:
    """When the last bucket is summed, counted from the beginning of backward."""
    bandwidth = network.duplex if cost.duplex else network.bandwidth
    per_byte = cost.volume / bandwidth + cost.sums / profile.sum_rate
    waiting = cost.steps * network.latency
    free = end = 0.0
    for bucket in profile.buckets():
        start = max(free, bucket.ready * backward)
        free = start + bucket.bytes * per_byte
        end = free + waiting
        if not cost.pipelined:
            free = end
    return end


@dataclass(frozen=True)
class Point:
    """One line of a scaling table."""

    nodes: int
    samples: float  # on each node
    iteration: Iteration
    speedup: float

    @property
    def efficiency(self) -> float:
        return self.speedup / self.nodes


def scaling(
    profile: Profile, network: Network, algorithm: str, batch: int, nodes: Sequence[int],
    per_rank: bool = False, overlap: bool = True,
) -> list[Point]:  # fmt: skip
    """Points for every number of nodes that a batch can be divided over.

    The batch is the global one; with `per_rank` every node has a whole one, and the speedup is that
    in samples per second.
    """
    alone = profile.compute(batch)
    points = []
    for p in nodes:
        samples = batch if per_rank else batch / p
        if samples < 1:
            break
        predicted = iteration(profile, network, algorithm, p, samples, overlap)
        done = p if per_rank else 1
        points.append(Point(p, samples, predicted, done * alone / predicted.total))
    return points


# The paper.

IMAGENET = 1_281_167  # training images


@dataclass(frozen=True)
class PaperNet:
    """A net as the paper trained it on one K20 with Caffe."""

    name: str
    gradient_bytes: float
    hours: float
    epochs: int

    def profile(self) -> Profile:
        # A K20 adds much faster than its network brings data.
        per_sample = 3600 * self.hours / (self.epochs * IMAGENET)
        return Profile(self.name, self.gradient_bytes, per_sample, sum_rate=math.inf)


@dataclass(frozen=True)
class PaperRow:
    """A multi-node run of the paper."""

    net: PaperNet
    gpus: int
    batch: int
    epochs: int
    hours: float
    speedup: float


# GoogLeNet on one GPU took "about 21 days": 47 times 10.5 hours are 20.5.
NIN = PaperNet("NiN", 30.4e6, 5.8 * 24, 47)
GOOGLENET = PaperNet("GoogLeNet", 53.5e6, 20.5 * 24, 64)
PAPER_ROWS = (
    PaperRow(NIN, 32, 256, 47, 11.0, 13),
    PaperRow(NIN, 32, 1024, 47, 6.0, 23),
    PaperRow(NIN, 128, 1024, 47, 3.6, 39),
    PaperRow(GOOGLENET, 32, 1024, 72, 23.4, 20),
    PaperRow(GOOGLENET, 128, 1024, 72, 10.5, 47),
)


def predict_paper(row: PaperRow) -> tuple[float, float]:
    """Hours and speedup of a row by this model: the plain tree, not overlapped with backward."""
    seconds = iteration(
        row.net.profile(), NETWORKS["gemini"], "tree", row.gpus, row.batch / row.gpus, overlap=False
    ).total
    hours = seconds * row.epochs * IMAGENET / row.batch / 3600
    return hours, row.net.hours / hours

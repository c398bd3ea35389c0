"""The cost model: the time of an iteration on many ranks, from a rank's profile and the network's.

One gradient of S bytes, a network of latency a and bandwidth B (B' with both directions busy; of
the last bucket, which no others hide, the bandwidth of messages that wait for each other):

  server    2 (p-1) (a + S/B)                    everything through the server's link, in and out
  tree      2 ceil(log2 p) (a + S/B)             reduced upwards, broadcast downwards
  halving   2 log2 p a + 2 (p-1)/p S/B'          recursive halving and doubling
            2 a + (n+1) (p-1)/p S/B'             where p is no power of two and a rank has n nodes
  ring      2 (p-1) a + 2 (p-1)/p S/B'

With G ranks on each of N hosts, messages between neighbours take the host's inner network, and the
ranks of a host share its link: see `levels`. To that comes the time to add what arrives, and what a
message costs whatever its size. The paper counts p for the server, whose link then sends and
receives at the same time; ours serves one bucket after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..errors import SolverError
from ..registry import Registry
from .buckets import BUCKET
from .division import power_of_two
from .tree import places, runs

BUCKET_BYTES = 4 * BUCKET
BACKWARD_SHARE = 2 / 3  # of a pass: backward computes two products where forward computes one
SUM_RATE = 5e9  # bytes of gradient that a core adds to others per second
GPU_SUM_RATE = 2e11  # the same of a GPU: a third of what its memory moves


@dataclass(frozen=True)
class Network:
    """What connects the nodes: seconds, and bytes per second in each direction."""

    name: str
    latency: float
    bandwidth: float
    both_ways: float = 0.0  # bandwidth while the other direction is busy, too; 0: the same
    in_steps: float = 0.0  # the same where each message waits for the last one; 0: as both_ways
    per_message: float = 0.0  # seconds of a host's time for each message, whatever its size
    per_host: int = 1  # ranks on one host, which share its link
    inner: Network | None = None  # between those; None: as fast as between hosts

    @property
    def duplex(self) -> float:
        return self.both_ways or self.bandwidth

    def seconds(self, level: Level, alone: bool) -> float:
        """Of one byte's way through this level of the network, others under way or not."""
        if not level.duplex:
            return level.volume / self.bandwidth
        return level.volume / (self.in_steps or self.duplex if alone else self.duplex)


def _gigabits(name: str, microseconds: float, gigabits: float) -> Network:
    """A link whose protocols leave 94 % of its rate to data."""
    return Network(name, microseconds * 1e-6, gigabits * 0.94e9 / 8)


# The latencies are those of MPI messages: over TCP for Ethernet, RDMA for InfiniBand.
# Gemini's bandwidth is what the paper's five rows show for its tree (see PAPER_ROWS); its data went
# through host memory, so it is below the link's own rate.
NETWORKS: Registry[Network] = Registry("network", SolverError)
for _network in (
    Network("memory", 2e-6, 8e9),  # shared by ranks of one host
    Network("pcie", 1e-5, 2e10),  # GPUs of one host, generation 4
    Network("nvlink", 5e-6, 1.5e11),
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
    wire_share: float = 1.0  # of a gradient's bytes travel: half of them as 16-bit numbers

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
class Level:
    """What goes through one level of the network per bucket: steps of latency, one after the other,
    messages of a rank, multiples of the bucket's bytes on the busiest link."""

    steps: int
    messages: int
    volume: float
    duplex: bool  # are both directions of a link busy at once?


@dataclass(frozen=True)
class Traffic:
    """What an algorithm costs per bucket: within a host, between hosts, and in additions."""

    inner: Level
    outer: Level
    sums: float  # multiples of the bucket's bytes
    pipelined: bool  # do the next bucket's messages travel while this one's are waited for?


def levels(algorithm: str, p: int, per_host: int = 1) -> Traffic:
    """The formulas above for p > 1 ranks, `per_host` of them on each host, neighbours together."""
    g = min(per_host, p)
    hosts = math.ceil(p / g)
    if algorithm == "server":
        return _sequential(2 * (g - 1), 2 * (p - g), p - 1)
    if algorithm == "tree":
        inner, outer = math.ceil(math.log2(g)), math.ceil(math.log2(hosts))
        return _sequential(2 * inner, 2 * outer, inner + outer)
    share = (p - 1) / p
    if algorithm == "ring":  # in step with its slowest link, which is one between hosts
        steps = 2 * (p - 1)
        both = Level(steps, steps, 2 * share, True), Level(0, 0, 0.0, True)
        inner_level, outer_level = both if hosts == 1 else both[::-1]
        return Traffic(inner_level, outer_level, share, True)
    if algorithm == "halving":
        return _halving(p, g, hosts)
    raise SolverError(f'unknown algorithm "{algorithm}"; known: {", ".join(ALGORITHMS)}')


def _sequential(inner: int, outer: int, sums: int) -> Traffic:
    """Whole buckets one after the other."""
    return Traffic(
        Level(inner, inner, inner, False), Level(outer, outer, outer, False), sums, False
    )


def _halving(p: int, g: int, hosts: int) -> Traffic:
    if p & (p - 1) == 0 and g & (g - 1) == 0:
        inside, outside = 2 * int(math.log2(g)), 2 * int(math.log2(hosts))
        return Traffic(
            Level(inside, inside, 2 * (g - 1) / g, True),
            Level(outside, outside, 2 * (hosts - 1) / hosts, True),
            (p - 1) / p, True,
        )  # fmt: skip
    # Everyone sends each of its nodes to everyone, a piece to each, and gets the sums back.
    leaves = power_of_two(p)
    nodes = max(len(places(own, leaves)) for own in runs(range(leaves), p))
    near, far = g - 1, p - g
    return Traffic(
        Level(2 * (near > 0), 2 * near, (nodes + 1) * near / p, True),
        Level(2 * (far > 0), 2 * far, (nodes + 1) * g * far / p, True),
        nodes * (p - 1) / p, True,
    )  # fmt: skip


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
    cost = levels(algorithm, p, network.per_host)
    busy = _finish(profile, network, cost, 0.0)
    end = _finish(profile, network, cost, backward) if overlap else backward + busy
    return Iteration(compute, busy, max(0.0, end - backward))


def _finish(profile: Profile, network: Network, cost: Traffic, backward: float) -> float:
    """When the last bucket is summed, counted from the beginning of backward."""
    inner = network.inner or network
    each = cost.outer.messages * network.per_message + cost.inner.messages * inner.per_message
    waiting = cost.outer.steps * network.latency + cost.inner.steps * inner.latency

    def seconds(bucket: Slice, alone: bool) -> float:
        on_wire = network.seconds(cost.outer, alone) + inner.seconds(cost.inner, alone)
        return bucket.bytes * (profile.wire_share * on_wire + cost.sums / profile.sum_rate) + each

    free = end = 0.0
    for bucket in profile.buckets():
        start = max(free, bucket.ready * backward)
        end = start + seconds(bucket, alone=True) + waiting
        free = start + seconds(bucket, alone=False) if cost.pipelined else end
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

    The batch is the global one, of which the busiest node has its share, rounded up; with
    `per_rank` every node has a whole one, and the speedup is that in samples per second.
    """
    alone = profile.compute(batch)
    points = []
    for p in nodes:
        if not per_rank and p > batch:
            break
        samples = batch if per_rank else math.ceil(batch / p)
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

"""Measuring what the cost model needs: a net's profile on this node, the network between ranks."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import schema
from ..backend.base import Backend
from ..errors import SolverError
from ..layers import Context, layer_class
from ..layers.dummy_data import DummyData
from ..net import Net
from ..schema.proto import NetParameter
from . import waiting
from .buckets import BUCKET, make_buckets
from .cost import Network, Profile, Slice

PASSES = 5  # the shortest counts
PINGS = 200
STREAMS, STREAM_SECONDS = 3, 0.5  # how often and how long to keep a link busy
EXCHANGES = 7  # the median counts
NAP = 5e-5  # seconds between looks at a message
QUICK_PINGS, QUICK_STREAMS, QUICK_BUCKETS = 20, 2, 4
WINDOW = 6  # messages under way, so that the link does not wait for the next one


# The net.


@dataclass(frozen=True)
class _Pass:
    """One training pass: seconds, and when backward had done each layer."""

    forward: float
    backward: float
    layers: dict[int, float]

    @property
    def total(self) -> float:
        return self.forward + self.backward


def measure_net(param: NetParameter, batch: int, backend: Backend) -> Profile:
    """Time passes of a TRAIN net without data of its own, at `batch` and at half of it."""
    batches = [batch, batch // 2] if batch > 1 else [batch]
    nets = [_build(param, size, backend) for size in batches]
    # In turns, so that whatever else the machine does falls on both.
    rounds = [[_run(net) for net in nets] for _ in range(PASSES + 1)][1:]  # the first one plans
    shortest = [min(passes, key=lambda done: done.total) for passes in zip(*rounds, strict=True)]
    whole, part = shortest[0].total, shortest[-1].total
    per_sample = whole / batch
    if batch > 1:
        # Noise must not make small batches cheaper than their share.
        per_sample = min(per_sample, max(0.0, whole - part) / (batch - batch // 2))
    profile = Profile(
        nets[0].name, 4.0 * nets[0].parameters.size, per_sample, whole - batch * per_sample,
        shortest[0].backward / whole, _slices(nets[0], shortest[0]), measure_sums(backend),
    )  # fmt: skip
    for net in nets:
        net.close()
    return profile


def with_constant_data(param: NetParameter, batch: int) -> NetParameter:
    """A copy of a net whose DummyData is constant, at that batch size: drawing is not its work."""
    made = schema.NetParameter()
    made.CopyFrom(param)
    for layer in made.layer:
        if issubclass(layer_class(layer.type), DummyData):
            for shape in layer.dummy_data_param.shape:
                shape.dim[0] = batch
            fillers = layer.dummy_data_param.data_filler
            del fillers[:]
            fillers.extend(
                schema.FillerParameter(type="constant", value=float(i == 0))
                for i in range(len(layer.top))
            )
    return made


def _build(param: NetParameter, batch: int, backend: Backend) -> Net:
    net = Net(with_constant_data(param, batch), backend=backend, context=Context(0))
    net.share_gradients()
    if not net.parameters.size:
        raise SolverError(f'net "{net.name}" has nothing to train, so ranks exchange nothing')
    return net


def _run(net: Net) -> _Pass:
    net.context.step += 1
    net.clear_gradients()
    net.backend.wait()
    began = time.perf_counter()
    net.run_forward()
    net.backend.wait()
    middle = time.perf_counter()
    layers: dict[int, float] = {}

    def note(layer: int) -> None:
        net.backend.wait()
        layers[layer] = time.perf_counter() - middle

    net.run_backward(after_layer=note)
    net.backend.wait()
    return _Pass(middle - began, time.perf_counter() - middle, layers)


def _slices(net: Net, done: _Pass) -> tuple[Slice, ...]:
    return tuple(
        Slice(4.0 * (b.place.stop - b.place.start), min(1.0, done.layers[b.layer] / done.backward))
        for b in make_buckets(net)
    )


def measure_sums(backend: Backend | None = None) -> float:
    """Bytes per second of adding buckets that come from memory: a device's, or the host's."""
    xp: Any = np if backend is None else backend.xp
    wait: Callable[[], object] = (lambda: None) if backend is None else backend.wait
    totals, arrived = xp.zeros((2, 4 * BUCKET), np.float32)
    seconds = math.inf
    for _ in range(PASSES):
        wait()
        began = time.perf_counter()
        xp.add(totals, arrived, out=totals)
        wait()
        seconds = min(seconds, time.perf_counter() - began)
    return float(totals.nbytes / seconds)


# The network.


def measure_network(comm: Any, per_host: int = 1) -> Network:
    """Latency and bandwidth of one pair of ranks, and bandwidth while all ranks talk both ways.

    With `per_host` ranks (a power of two) on each host, in blocks: between hosts, whose ranks then
    share a link, and within them.
    """
    if per_host > comm.Get_size() // 2 or per_host & (per_host - 1):
        raise SolverError(
            f"{comm.Get_size()} ranks, {per_host} on each host: measuring needs two hosts, with a "
            f"power of two of ranks each"
        )
    network = replace(_measure_pairs(comm, per_host, comm.Get_size()), per_host=per_host)
    return network if per_host == 1 else replace(network, inner=_measure_pairs(comm, 1, per_host))


def _measure_pairs(comm: Any, nearest: int, farthest: int) -> Network:
    """Between ranks at least so far apart and not so far; `nearest` pairs share a link."""
    rank, peer = comm.Get_rank(), comm.Get_rank() ^ nearest
    first = rank in (0, nearest)
    latency = _slowest(comm, _ping(comm, peer) if first else 0.0)
    one_way = _bandwidth(comm, peer, first, both_ways=False)
    paired = peer < comm.Get_size()
    both_ways = min(one_way, nearest * _bandwidth(comm, peer, paired, both_ways=True))
    distances = [nearest << i for i in range(farthest.bit_length()) if nearest << i < farthest]
    in_steps = min(both_ways, nearest * _bandwidth_in_steps(comm, distances))
    return Network("measured", latency, one_way, both_ways, in_steps)


def quick_link(comm: Any, first: int, second: int) -> tuple[float, float]:
    """Latency and one-way bandwidth of two ranks within some tenths of a second, the others
    waiting: for the record of a job, not for predictions."""
    rank = comm.Get_rank()
    peer = {first: second, second: first}.get(rank)
    _wait_for_all(comm)
    latency = _slowest(comm, _ping(comm, peer, QUICK_PINGS) if peer is not None else 0.0)
    seconds = math.inf
    for _ in range(QUICK_STREAMS):
        _wait_for_all(comm)
        took = _stream(comm, peer, QUICK_BUCKETS, both_ways=False) if peer is not None else 0.0
        seconds = min(seconds, _slowest(comm, took))
    return latency, 4.0 * BUCKET * QUICK_BUCKETS / seconds


def _bandwidth(comm: Any, peer: int, active: bool, both_ways: bool) -> float:
    """The best of some streams, each long enough to be judged."""
    count, best, long = 1, 0.0, 0
    while long < STREAMS:
        _wait_for_all(comm)
        seconds = _slowest(comm, _stream(comm, peer, count, both_ways) if active else 0.0)
        best = max(best, 4.0 * BUCKET * count / seconds)
        if seconds >= STREAM_SECONDS / 2:
            long += 1
        else:
            count *= max(2, min(16, round(STREAM_SECONDS / seconds)))
    return best


def _slowest(comm: Any, seconds: float) -> float:
    _wait_for_all(comm)
    return float(max(comm.allgather(seconds)))


def _wait_for_all(comm: Any) -> None:
    _doze_until_done(comm.Ibarrier(), 1e-3)


def _doze_until_done(request: Any, nap: float) -> None:
    """Ranks may share cores: those that wait leave them to those that work."""
    while not request.Test():
        time.sleep(nap)


def _ping(comm: Any, peer: int, count: int = PINGS) -> float:
    """Half the median time of a round trip."""
    first = comm.Get_rank() < peer
    ball = np.zeros(1, np.float32)
    times = []
    for _ in range(count):
        began = time.perf_counter()
        if first:
            comm.Send(ball, peer)
            comm.Recv(ball, peer)
        else:
            comm.Recv(ball, peer)
            comm.Send(ball, peer)
        times.append(time.perf_counter() - began)
    return float(np.median(times)) / 2


def _stream(comm: Any, peer: int, count: int, both_ways: bool) -> float:
    """Seconds to send `count` buckets to the odd rank of a pair, or to each other."""
    first = comm.Get_rank() < peer
    outgoing, incoming = np.zeros((2, BUCKET), np.float32)
    requests: list[Any] = []
    began = time.perf_counter()
    for _ in range(count):
        if both_ways or not first:
            requests.append(comm.Irecv(incoming, peer))
        if both_ways or first:
            requests.append(comm.Isend(outgoing, peer))
        while len(requests) > WINDOW:
            _doze_until_done(requests.pop(0), NAP)
    for request in requests:
        _doze_until_done(request, NAP)
    return time.perf_counter() - began


def _bandwidth_in_steps(comm: Any, distances: Sequence[int]) -> float:
    """Bytes per second each way while all ranks exchange with one partner after the other, as in
    a sum that is alone: who is late makes its partners late, which no stream of one pair shows."""
    rounds: list[float] = []
    while len(rounds) < EXCHANGES or sum(rounds) < STREAM_SECONDS:
        _wait_for_all(comm)
        rounds.append(_slowest(comm, _exchange(comm, distances)))
    elements = sum(BUCKET >> i for i in range(1, len(distances) + 1))
    return 4.0 * elements / statistics.median(rounds)


def _exchange(comm: Any, distances: Sequence[int]) -> float:
    """Seconds to exchange half of a bucket, then a quarter, and so on, at these distances."""
    outgoing, incoming = np.zeros((2, BUCKET // 2), np.float32)
    began = time.perf_counter()
    for i, distance in enumerate(distances):
        peer, part = comm.Get_rank() ^ distance, slice(BUCKET >> (i + 1))
        if peer < comm.Get_size():
            for request in (comm.Irecv(incoming[part], peer), comm.Isend(outgoing[part], peer)):
                _doze_until_done(request, waiting.LONGEST_NAP)
    return time.perf_counter() - began

"""Running the leaves of one rank: nets that share their weights, side by side on threads.

With one leaf the net's own ops use all threads, which is Caffe's arithmetic. With more, every leaf
runs on single-threaded plans and as many run at once as there are threads, so that bits depend on
the number of leaves alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from threading import BrokenBarrierError
from typing import TypeVar

from ..backend.base import Backend
from ..backend.tensor import NATIVE, Array
from ..layers import Context
from ..net import Net
from .buckets import Exchange, make_buckets
from .communicator import Communicator
from .device import adapted
from .feeding import Feeding
from .lockstep import Lockstep
from .tree import Node, PartialSums, check_leaves, runs

T = TypeVar("T")


def own_parts(
    communicator: Communicator, backend: Backend, leaves: int, in_step: bool
) -> list[range]:
    """This rank's leaves, as runs for nets that compute side by side: one each if all leaves go
    `in_step`, because layers sum over them in the middle of a pass."""  # fmt: skip
    own = communicator.own_leaves(leaves)
    if leaves == 1:
        return [own]
    return runs(own, len(own) if in_step else backend.threads)


MakeNet = Callable[[Backend, Context, "Net | None"], Net]


@dataclass
class Output:
    """One number of one output blob, averaged over leaves and passes."""

    name: str
    value: float
    loss_weight: float


@dataclass
class LeafResult:
    """What a leaf reports besides its gradients."""

    loss: float
    outputs: list[float] = field(default_factory=list)


class Leaves:
    """The nets of this rank. `net` is the first; `gradients` after `run` is the tree's root."""

    def __init__(
        self, make_net: MakeNet, backend: Backend, communicator: Communicator, leaves: int,
        start: Context, in_step: bool = False,
    ) -> None:  # fmt: skip
        check_leaves(leaves)
        communicator = adapted(communicator, backend)
        self.count, self.iter_size, self.communicator = leaves, start.iter_size, communicator
        self.backend = backend
        parts = own_parts(communicator, backend, leaves, in_step)
        self._lockstep: Lockstep | None = None
        if in_step and leaves > 1:
            own = communicator.own_leaves(leaves)
            self._lockstep = Lockstep(communicator.another(), own, leaves, backend.on_host)
            start = replace(start, lockstep=self._lockstep)
        self._feeding = Feeding(communicator, leaves)
        if leaves > 1:
            start = replace(start, feeds=self._feeding)
        self.nets: list[Net] = []
        for part in parts:
            context = start.on_leaves(part, leaves)
            kind = backend if leaves == 1 else backend.another(1)
            self.nets.append(make_net(kind, context, self.nets[0] if self.nets else None))
        self.net = self.nets[0]
        self._sources = [layer for layer in self.net.layers if layer.feeds_leaves]
        self._pool = ThreadPoolExecutor(len(parts)) if len(parts) > 1 else None
        self._spare: list[Array] = []
        self._held: list[list[Node]] = []
        self.exchange: Exchange | None = None
        if leaves > 1:
            buckets = make_buckets(self.net)
            merge = backend.another(1).accumulate
            self.exchange = Exchange(buckets, len(self.nets), leaves, communicator, merge)

    # One iteration.

    def run(self, iteration: int, collect: bool = False) -> tuple[float, list[Output]]:
        """One iteration's gradients, summed over passes and leaves; returns loss and outputs."""
        self.net.parameters.sync_weights()  # before threads share them
        first = iteration * self.iter_size
        self._feeding.distribute(self._sources, range(first, first + self.iter_size))
        self._held = [[] for _ in self.nets]
        if self.exchange is not None:
            self.exchange.begin(self._held)
        results = self._side_by_side(lambda net: self._run_net(net, iteration, collect))
        self._finish_sum()
        loss = self._mean([r.loss for r in results])
        return loss, self._outputs([r.outputs for r in results]) if collect else []

    def evaluate(self, iteration: int) -> float:
        """The loss of an iteration's first batch over all leaves, without gradients."""
        self.net.parameters.sync_weights()
        self._feeding.distribute(self._sources, [iteration * self.iter_size])
        return self._mean(self._side_by_side(lambda net: self._forward_net(net, iteration)))

    def _side_by_side(self, work: Callable[[int], list[T]]) -> list[T]:
        """What `work` returns for the leaves of every net by its number, in order of leaves."""
        numbers = range(len(self.nets))
        if self._lockstep is not None:
            with self._lockstep.running():
                return self._in_step(self._lockstep, work)
        parts = self._pool.map(work, numbers) if self._pool is not None else map(work, numbers)
        return [result for part in parts for result in part]

    def _in_step(self, lockstep: Lockstep, work: Callable[[int], list[T]]) -> list[T]:
        """The same, where leaves wait for each other: one that fails fails for all."""
        failures: list[BaseException] = []

        def run(number: int) -> list[T]:
            try:
                with lockstep.turn():
                    self.backend.activate()
                    return work(number)
            except BaseException as error:
                if not isinstance(error, BrokenBarrierError):  # the cause, not one that waited
                    failures.append(error)
                lockstep.fail()
                return []

        pool = self._pool.map if self._pool is not None else map
        results = [result for part in pool(run, range(len(self.nets))) for result in part]
        if failures:
            raise failures[0]
        return results

    def _forward_net(self, index: int, iteration: int) -> list[float]:
        net, losses = self.nets[index], []
        net.context.step = iteration * self.iter_size
        for leaf in net.context.own_leaves:
            net.context.leaf = leaf
            losses.append(net.run_forward())
        return losses

    def _run_net(self, index: int, iteration: int, collect: bool) -> list[LeafResult]:
        """All leaves of one net, each complete before the next; the last goes out in buckets."""
        net = self.nets[index]
        sums = PartialSums(self.count, net.backend.accumulate, self._spare.append)
        results = []
        for leaf in net.context.own_leaves:
            last = leaf == net.context.own_leaves[-1]
            net.context.leaf = leaf
            net.parameters.bind_gradients(self._buffer(net))
            net.clear_gradients()
            node = Node(leaf, 1, net.parameters.gradients)
            if last:
                self._held[index] = [*sums.nodes, node]
            results.append(self._run_leaf(index, iteration, collect, last))
            if not last:
                net.parameters.sync_gradients()
                sums.add(node)
        return results

    def _run_leaf(self, index: int, iteration: int, collect: bool, last: bool) -> LeafResult:
        net = self.nets[index]
        result = LeafResult(0.0)
        for i in range(self.iter_size):
            net.context.step = iteration * self.iter_size + i
            result.loss += net.run_forward() / self.iter_size
            if last and i == self.iter_size - 1 and self.exchange is not None:
                net.run_backward(after_layer=lambda layer: self._report(index, layer))
            else:
                net.run_backward()
        if collect:
            result.outputs = output_values(net)
        return result

    def _report(self, index: int, layer: int) -> None:
        assert self.exchange is not None
        for bucket in self.exchange.report(index, layer):
            self.nets[index].parameters.sync_gradients(bucket.place)
            self.exchange.submit(bucket)

    def _finish_sum(self) -> None:
        if self.exchange is None:
            self.net.parameters.sync_gradients()
            self.gradients = self.net.parameters.gradients
            return
        self.exchange.finish()
        # Every merge goes to the left, so the root lies in the buffer of the first node.
        buffers = [node.sum for nodes in self._held for node in nodes]
        self.gradients, self._spare = buffers[0], [*self._spare, *buffers[1:]]
        self.net.fold_averages(self.gradients, self.count)

    def finish(self) -> None:
        """The gradients have been used; their buffer may serve again."""
        if self.exchange is not None:
            self._spare.append(self.gradients)

    def show_gradients(self) -> None:
        """Let the net's blobs hold the whole batch's last gradients, as they do with one leaf."""
        if self.exchange is not None and self._held:
            gradients: Array = self.gradients
            self.net.parameters.bind_gradients(gradients / self.count)
            for p in self.net.parameters.items:
                p.blob.gradient.fresh = NATIVE

    def _buffer(self, net: Net) -> Array:
        """A buffer for one leaf's gradients."""
        if self.exchange is None and net.parameters.gradients is not None:
            return net.parameters.gradients
        try:
            return self._spare.pop()
        except IndexError:
            wanted = self.communicator.buffer(net.parameters.size)
            return net.parameters.zeros() if wanted is None else wanted

    # Numbers besides gradients.

    def _mean(self, values: Sequence[float]) -> float:
        return sum(self.communicator.gather_leaves(values)) / self.count

    def _outputs(self, values: list[list[float]]) -> list[Output]:
        names = output_names(self.net)
        columns = zip(*values, strict=True)
        return [
            Output(name, self._mean(column), weight)
            for (name, weight), column in zip(names, columns, strict=True)
        ]

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        if self.exchange is not None:
            self.exchange.close()
        for net in self.nets:
            net.close()


def output_names(net: Net) -> list[tuple[str, float]]:
    """(name, loss weight) of every number in the net's outputs."""
    weights = {
        blob.name: weight
        for tops, layer in zip(net.tops, net.layers, strict=True)
        for blob, weight in zip(tops, layer.loss_weights, strict=False)
    }
    return [
        (name, weights.get(name, 0.0)) for name in net.outputs for _ in range(net.blobs[name].count)
    ]


def output_values(net: Net) -> list[float]:
    return [float(v) for name in net.outputs for v in net.blobs[name].data.reshape(-1)]

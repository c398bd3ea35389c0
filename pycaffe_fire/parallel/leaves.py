"""Running the leaves of one rank: nets that share their weights, side by side on threads.

With one leaf the net's own ops use all threads, which is Caffe's arithmetic. With more, every leaf
runs on single-threaded plans and as many run at once as there are threads, so that bits depend on
the number of leaves alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from ..backend.base import Backend
from ..backend.tensor import Array
from ..layers import Context
from ..net import Net
from .communicator import Communicator
from .tree import Node, PartialSums, check_leaves, runs

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
        seed: int, iter_size: int,
    ) -> None:  # fmt: skip
        check_leaves(leaves)
        self.count, self.iter_size, self.communicator = leaves, iter_size, communicator
        own = communicator.own_leaves(leaves)
        parts = runs(own, backend.threads) if leaves > 1 else [own]
        self.nets: list[Net] = []
        for part in parts:
            context = Context(
                seed, 0, part[0] if part else 0, leaves, tuple(part) or (0,), iter_size
            )
            kind = backend if leaves == 1 else backend.another(1)
            self.nets.append(make_net(kind, context, self.nets[0] if self.nets else None))
        self.net = self.nets[0]
        self.backend = backend
        self._pool = ThreadPoolExecutor(len(parts)) if len(parts) > 1 else None
        self._spare: list[Array] = []

    def run(self, iteration: int, collect: bool = False) -> tuple[float, list[Output]]:
        """One iteration's gradients, summed over passes and leaves; returns loss and outputs."""
        if self._pool is None:
            parts = [self._run_net(net, iteration, collect) for net in self.nets]
        else:
            jobs = [self._pool.submit(self._run_net, net, iteration, collect) for net in self.nets]
            parts = [job.result() for job in jobs]
        sums = PartialSums(self.backend.accumulate, self._spare.append)
        results: list[LeafResult] = []
        for nodes, found in parts:
            sums.extend(nodes)
            results += found
        self.gradients = self.communicator.sum_gradients(sums.nodes)
        self._spare += [node.sum for node in sums.nodes if node.sum is not self.gradients]
        if self.count > 1:
            self.net.absorb(self.gradients, self.count)
        loss = self._mean([r.loss for r in results])
        return loss, self._outputs([r.outputs for r in results]) if collect else []

    def _mean(self, values: Sequence[float]) -> float:
        return sum(self.communicator.gather_leaves(values)) / self.count

    def _outputs(self, values: list[list[float]]) -> list[Output]:
        names = output_names(self.net)
        columns = zip(*values, strict=True)
        return [
            Output(name, self._mean(column), weight)
            for (name, weight), column in zip(names, columns, strict=True)
        ]

    def _run_net(
        self, net: Net, iteration: int, collect: bool
    ) -> tuple[list[Node], list[LeafResult]]:
        """All leaves of one net, each complete before the next, merged as far as they go."""
        sums = PartialSums(net.backend.accumulate, self._spare.append)
        results = []
        for leaf in net.context.own_leaves:
            net.context.leaf = leaf
            net.parameters.bind_gradients(self._buffer(net))
            net.clear_param_diffs()
            result = LeafResult(0.0)
            for i in range(self.iter_size):
                net.context.step = iteration * self.iter_size + i
                result.loss += net.forward_backward() / self.iter_size
            if collect:
                result.outputs = output_values(net)
            net.parameters.settle_gradients()
            sums.add(Node(leaf, 1, net.parameters.gradients))
            results.append(result)
        return sums.nodes, results

    def _buffer(self, net: Net) -> Array:
        """A buffer for one leaf's gradients: the net's own if nobody holds it any more."""
        if self.count == 1 and net.parameters.gradients is not None:
            return net.parameters.gradients
        return self._spare.pop() if self._spare else net.parameters.zeros()

    def finish(self) -> None:
        """The gradients have been used; their buffer may serve again."""
        if self.count > 1:
            self._spare.append(self.gradients)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
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

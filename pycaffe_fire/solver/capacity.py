"""Does a run fit into memory? What it will take, what there is, and what to change if it does not.

Blobs get their memory when they are first used, so a net whose layers are planned has
known sizes before it takes any memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ..backend import host
from ..backend.base import Backend
from ..backend.sizes import mebibytes
from ..errors import SolverError
from ..layers.feed import DEPTH, Feed
from ..net import Net
from ..net.gradient_arena import planned_elements
from ..net.summary import BYTES
from ..parallel.feeding import Feeding
from ..parallel.leaves import own_parts
from ..schema.proto import SolverParameter
from .nets import find_test_nets, find_train_net
from .options import SolverOptions, net_context, net_state
from .rules import RULES
from .statistics import spans_leaves


@dataclass(frozen=True)
class Need:
    """Bytes that training takes besides its weights, on one rank."""

    blobs: int
    gradients: int
    parameters: int  # their gradients and history
    batches: int
    tests: int
    plans: int = 0  # what a device's plans keep and share

    @property
    def total(self) -> int:
        return sum(asdict(self).values())

    @property
    def growing(self) -> int:
        """The part that grows with the training batch."""
        return self.blobs + self.gradients + self.batches + self.plans

    def text(self) -> str:
        parts = asdict(self).items()
        shown = [(name, size) for name, size in parts if size or name != "plans"]
        return ", ".join(f"{name} {mebibytes(size)}" for name, size in shown)


def need_of(net: Net, copies: int, tests: Sequence[Net], slots: int, shared: bool) -> Need:
    """Of a rank with `copies` nets like `net` side by side and `slots` history buffers."""
    host = net.backend.on_host  # else batches wait in host memory, not on the device
    if not host:
        for each in (net, *tests):
            each.plan_ahead()
    values, gradients = planned_elements(net, shared)
    # Leaves that wait for their siblings in the tree keep a buffer of gradients each.
    waiting = len(net.context.own_leaves).bit_length()
    return Need(
        BYTES * copies * values,
        BYTES * copies * gradients,
        BYTES * net.parameters.size * (copies * waiting + slots),
        copies * _batches(net) if host else 0,
        sum(BYTES * planned_elements(test, False)[0] + _batches(test) * host for test in tests),
        net.backend.planned_bytes(),
    )


def _batches(net: Net) -> int:
    """What data layers prepare ahead."""
    feeds = (i for i, layer in enumerate(net.layers) if isinstance(layer, Feed))
    return sum(DEPTH * BYTES * blob.count for i in feeds for blob in net.tops[i])


def free_bytes(backend: Backend) -> int | None:
    """Memory of the backend's device that can still be had; None if that is unknown."""
    if backend.on_host:
        return host.free_bytes()
    backend.activate()
    free, _ = backend.xp.cuda.Device().mem_info
    return int(free)


def check_fits(need: Need, backend: Backend, batch: int, ranks: int) -> None:
    """Refuse to train what cannot fit; `ranks` ranks share this host's memory."""
    free = free_bytes(backend)
    sharing = ranks if backend.on_host else 1
    if free is None or need.total * sharing <= free:
        return
    what = "this machine" if backend.on_host else "the GPU"
    each = f" for each of {sharing} ranks on this host" if sharing > 1 else ""
    raise SolverError(
        f"a batch of {batch} does not fit into memory: training needs another "
        f"{mebibytes(need.total)}{each} ({need.text()}), but {what} has {mebibytes(free)} free; "
        f"{_way_out(need, free // sharing, batch)}"
    )


def largest_batch(need: Need, free: int, batch: int) -> int:
    """How many samples about would fit, where `batch` of them need this."""
    room = free - (need.total - need.growing)
    return max(0, room * batch // max(1, need.growing))


def device_report(need: Need, weights: int, backend: Backend, batch: int) -> str | None:
    """What a run will take of a device, before its first launch; None for the host's memory."""
    free = free_bytes(backend)
    if backend.on_host or free is None:
        return None
    return (
        f"Device memory: {mebibytes(weights + need.total)} planned (weights {mebibytes(weights)}, "
        f"{need.text()}), {mebibytes(free)} free; a batch of about "
        f"{largest_batch(need, free, batch):,} would fit"
    )


def _way_out(need: Need, free: int, batch: int) -> str:
    room = free - (need.total - need.growing)
    if room > 0:
        for parts in range(2, batch + 1):
            if batch % parts == 0 and need.growing // parts <= room:
                return (
                    f"use batch_size {batch // parts} with iter_size {parts}, which is the same "
                    f"training but for BatchNorm's statistics, or more hosts"
                )
    if need.tests > need.parameters:
        return "give the test nets a smaller batch_size and a larger test_iter"
    return "not even one sample fits: use a smaller net, or a larger machine"


def planned(param: SolverParameter, options: SolverOptions) -> tuple[Net, Need]:
    """A solver's training net without a solver, and what training it on one rank would take."""
    backend, leaves = options.backend, options.leaves
    train = find_train_net(param, net_state(options))
    parts = own_parts(options.communicator, backend, leaves, spans_leaves(train.param))
    context = net_context(options, param.iter_size).on_leaves(parts[0], leaves)
    context.feeds = Feeding(options.communicator, leaves)
    net = Net(
        train.param, backend if leaves == 1 else backend.another(1),
        context, source=train.path,
    )  # fmt: skip
    tests = [
        Net(found.param, backend, net_context(options), net, found.path)
        for found in find_test_nets(param)
    ]
    return net, need_of(net, len(parts), tests, RULES[param.type].slots, shared=True)

"""Writing a solver's snapshots, and going on from one as if it had never been stopped."""

from __future__ import annotations

import logging
import os
import shutil
import time
import weakref
from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

from .. import schema
from ..backend.sizes import mebibytes
from ..backend.tensor import Tensor
from ..errors import SolverError, WeightsError
from ..layers.feed import Feed
from ..net import Net
from ..schema.files import digest, replacing
from ..schema.proto import SolverParameter
from .events import Saved
from .rates import passed_steps
from .run_record import Recorded, beside, check_sums, seal, unseal
from .snapshot_files import Pair, pair, prepare, prune

if TYPE_CHECKING:
    from .solver import Solver

log = logging.getLogger("pycaffe_fire")


class Carried(Protocol):
    """Something of a solver's that snapshots take along; filed by name in `Solver.carried`."""

    def state(self) -> Any:
        """What JSON can hold of it; all ranks call this together."""

    def restore(self, state: Any) -> None:
        """Go on from what `state` gave."""


class Snapshots:
    """The snapshots of one solver. Rank 0 writes; every rank restores.

    `last` is the state file written or restored last, `failure` why the last attempt to write one
    failed, `keep` how many to keep (None: all).
    """

    def __init__(self, solver: Solver, keep: int | None) -> None:
        # Not a reference: a solver that is dropped must be gone at once, with its nets and threads.
        self.solver: Solver = weakref.proxy(solver)
        self.keep = keep
        self.last: str | None = None
        self.failure: str | None = None

    # Writing.

    @property
    def _prefix(self) -> str:
        return str(self.solver.param.snapshot_prefix) or "snapshot"

    def prepare(self) -> None:
        """Refuse to train where snapshots cannot be written."""
        p = self.solver.param
        if self.solver.communicator.rank == 0 and (p.snapshot or p.snapshot_after_train):
            prepare(self._prefix)

    def write(self, name: str = "") -> bool:
        """Write PREFIX_iter_N, or under the name given; both files, or neither. It is there then,
        or an error says why not."""
        solver = self.solver
        carried = {name: thing.state() for name, thing in solver.carried.items()}
        if solver.communicator.rank:
            return True
        hdf5 = solver.param.snapshot_format == schema.SolverParameter.HDF5
        files = pair(self._prefix, name or f"iter_{solver.iter}", hdf5)
        try:
            os.makedirs(os.path.dirname(files.model) or ".", exist_ok=True)
        except OSError as error:
            raise WeightsError(f"{files.model}: its folder cannot be made: {error}") from error
        self._write(files, carried)
        self.last, self.failure = files.state, None
        kind = "HDF5" if hdf5 else "binary proto"
        solver.tell(Saved(files.model, "weights", kind))
        solver.tell(Saved(files.state, "state", kind))
        if self.keep and not name:
            prune(self._prefix, solver.iter, self.keep)
        return True

    def _write(self, files: Pair, carried: dict[str, Any]) -> None:
        """Both files take their names when both are complete, the weights first."""
        diffs = self.solver.param.snapshot_diff
        if diffs:
            self.solver.leaves.show_gradients()
        with (
            replacing(files.state, WeightsError) as new_state,
            replacing(files.model, WeightsError) as new_model,
        ):
            self.solver.net.save(os.fspath(new_model), diffs)
            state = self._state(files.model)
            state.extra = seal(state, self._record(digest(new_model, WeightsError), carried))
            schema.write_state(new_state, state)

    def attempt(self, name: str = "") -> bool:
        """Write, but let a disk that is full or gone be no reason to stop training.

        Was it written? All ranks know, and call this together.
        """
        try:
            self.write(name)
        except WeightsError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            self.failure = str(error)
            log.warning(
                "Snapshot at iteration %d failed: %s. It needs about %s, %s; older snapshots are "
                "untouched and training goes on",
                self.solver.iter, error, mebibytes(self._size()), self._free(),
            )  # fmt: skip
        self.last, self.failure = self.solver.communicator.broadcast((self.last, self.failure))
        return not self.failure

    def check_saved(self) -> None:
        """At the end of a run: raise if its last snapshot could not be written."""
        if self.failure:
            rest = f"the last one written is {self.last}" if self.last else "none was written"
            raise SolverError(
                f"iteration {self.solver.iter} could not be saved: {self.failure}. {rest}; a "
                f"snapshot needs about {mebibytes(self._size())}, {self._free()}"
            )

    def _size(self) -> int:
        parameters = self.solver.net.parameters
        copies = 1 + bool(self.solver.param.snapshot_diff) + len(self.solver.history)
        return 4 * copies * sum(p.blob.count for p in parameters.items)

    def _free(self) -> str:
        try:
            free = shutil.disk_usage(os.path.dirname(self._prefix) or ".").free
        except OSError:
            return "and its folder does not exist"
        return f"{mebibytes(free)} are free"

    def _state(self, model: str) -> schema.SolverStateFile:
        solver = self.solver
        history = [tensor.host for tensor in self._slots()]
        plateau = solver.plateau
        step = plateau.seen or passed_steps(solver.param, solver.iter)
        return schema.SolverStateFile(
            solver.iter, model, history, step,
            minimum_loss=plateau.minimum_loss, iter_last_event=plateau.last_event,
        )  # fmt: skip

    def _slots(self) -> list[Tensor]:
        """The history, slot by slot and parameter by parameter, as Caffe orders it."""
        parameters = self.solver.net.parameters
        return [
            parameters.like(i, slot)
            for slot in self.solver.history
            for i in range(len(parameters.items))
        ]

    def _record(self, weights: str, carried: dict[str, Any]) -> Recorded:
        solver = self.solver
        return Recorded(
            seed=solver.seed,
            leaves=solver.leaves.count,
            written=time.time(),
            weights=weights,
            data=self._data(),
            tests=solver.test_steps,
            tested=solver.tested == solver.iter,
            losses=[float(loss) for loss in solver.losses],  # a device may still have them
            carried=carried,
        )

    def _data(self) -> dict[str, list[int]]:
        """Where every source stands: its next sample, and how many records it has."""
        solver = self.solver
        step = solver.iter * solver.param.iter_size
        nets = [("train", solver.net, step)]
        nets += [
            (f"test {i}", net, at)
            for i, (net, at) in enumerate(zip(solver.test_nets, solver.test_steps, strict=True))
        ]
        return {
            f"{which} {layer.name}": [at * batch, layer.records]
            for which, net, at in nets
            for layer, batch in _feeds(net)
        }

    # Going on.

    def restore(self, path: str) -> None:
        """Take over a snapshot, Caffe's or ours; one that cannot be used changes nothing."""
        solver = self.solver
        state = schema.read_state(path)
        recorded = unseal(state, path)
        slots = self._slots()
        self._check_history(path, state, slots)
        check_sums(state, path)
        if state.learned_net:
            solver.net.copy_from(beside(state.learned_net, path))
        for array, tensor in zip(state.history, slots, strict=True):
            tensor.host[...] = array.reshape(tensor.shape)
            tensor.sync()
        solver.iter = state.iter
        solver.losses.clear()
        solver.resumed = True
        if recorded:
            self._go_on(recorded)
        else:
            solver.test_steps = _tests_until(solver.param, state.iter)
            solver.tested = None
            solver.plateau.adopt(state)
        self.last = path

    def _check_history(self, path: str, state: schema.SolverStateFile, slots: list[Tensor]) -> None:
        if len(state.history) != len(slots):
            raise WeightsError(
                f"{path}: holds {len(state.history)} history blobs, but solver type "
                f'"{self.solver.param.type}" on this net needs {len(slots)}; was it '
                f"written by another solver type or net?"
            )
        items = self.solver.net.parameters.items
        for i, (array, tensor) in enumerate(zip(state.history, slots, strict=True)):
            if array.size != prod(tensor.shape):
                raise WeightsError(
                    f"{path}: history blob {i} has shape {list(array.shape)}, but parameter "
                    f"{items[i % len(items)].name} has {list(tensor.shape)}"
                )

    def _go_on(self, recorded: Recorded) -> None:
        solver = self.solver
        if len(recorded.tests) == len(solver.test_nets):
            solver.test_steps = recorded.tests
        solver.tested = solver.iter if recorded.tested else None
        solver.losses.extend(recorded.losses)
        for name, thing in solver.carried.items():
            if name in recorded.carried:
                thing.restore(recorded.carried[name])
        for name, now in self._data().items():
            then = recorded.data.get(name, now)
            if now != then:
                log.warning(
                    "%s: goes on at sample %d of a source of %d records, but the snapshot's run "
                    "stood at %d of %d: batch or data changed, so samples repeat or are left out",
                    name, *now, *then,
                )  # fmt: skip


def _feeds(net: Net) -> Iterator[tuple[Feed, int]]:
    """A net's data layers with the size of their global batch."""
    for layer, tops in zip(net.layers, net.tops, strict=True):
        if isinstance(layer, Feed):
            yield layer, tops[0].shape[0] * net.context.leaves


def _tests_until(param: SolverParameter, iteration: int) -> list[int]:
    """The passes of each test net before an iteration's own test, in a run from the start."""
    if not param.test_interval or not iteration:
        return [0] * len(param.test_iter)
    tests = -(-iteration // param.test_interval) - (not param.test_initialization)
    return [tests * passes for passes in param.test_iter]

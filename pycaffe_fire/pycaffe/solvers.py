"""pycaffe's solvers: one class per type, callbacks, updates in loops of one's own, Ctrl-C."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from .. import schema
from ..backend.tensor import NATIVE, Array
from ..errors import SolverError
from ..parallel.leaves import Output
from ..report.text import CaffeLog
from ..solver import Action, Solver, SolverOptions, read_param
from ..solver.rules import RULES
from .interrupt import Interrupts
from .nccl import NCCL, job_options
from .net import Net
from .settings import (
    allowed_output,
    default_backend,
    python_modules_allowed,
    seed_for,
    solver_count,
)

log = logging.getLogger("pycaffe_fire")

Path = str | os.PathLike[str]
Callback = Callable[[], Any]


class PycaffeSolver(Solver):
    """A solver as scripts use it; its class says its type, which a prototxt may leave out.

    Keywords are fields of SolverOptions; without them the process-wide settings decide.
    """

    type: ClassVar[str]

    def __init__(self, solver_file: Any, **options: Any) -> None:
        param = _read(solver_file)
        if param.HasField("type") and param.type != self.type:
            name = os.fspath(solver_file) if _is_path(solver_file) else "the solver"
            log.warning(
                '%s asks for type "%s", but the class for "%s" is used, as in pycaffe; get_solver '
                "takes the prototxt's",
                name, param.type, self.type,
            )  # fmt: skip
        param.type = self.type
        super().__init__(param, _options(param, options))
        self.net: Net
        self.net.parameters.trained = True
        self._callbacks: list[tuple[Callback, Callback]] = []
        self._stepping = False

    # Running.

    def step(self, iterations: int) -> None:
        """Train this many iterations. Ctrl-C ends it after the one that is running, so that
        weights, iteration and data fit together and training can go on."""  # fmt: skip
        request = self.requested_action
        with Interrupts() as interrupts:
            self.requested_action = lambda: Action.STOP if interrupts.asked else request()
            self._stepping = True
            self.net.before_run()
            try:
                super().step(iterations)
            finally:
                self.net.after_run()
                self.requested_action = request
                self._stepping = False
                self._place_data()

    def _place_data(self) -> None:
        """A forward of the caller's own goes on with the batch that training would use next."""
        self.net.context.step = self.iter * self.param.iter_size
        self.net.context.leaf = self._first_leaf

    def add_callback(
        self, on_start: Callback | NCCL, on_gradients_ready: Callback | None = None
    ) -> None:
        """Call `on_start` before every iteration and `on_gradients_ready` before its update, when
        the nets' diffs hold the gradients, which it may change. One callable alone is called when
        gradients are ready."""  # fmt: skip
        if isinstance(on_start, NCCL):
            return  # the solver sums gradients by itself
        if on_gradients_ready is None:
            on_start, on_gradients_ready = _nothing, on_start
        for each in (on_start, on_gradients_ready):
            if not callable(each):
                raise SolverError(f"add_callback takes functions, got {each!r}")
        self._callbacks.append((on_start, on_gradients_ready))

    def compute_gradients(self, collect: bool) -> tuple[float, list[Output]]:
        for on_start, _ in self._callbacks:
            on_start()
        found = super().compute_gradients(collect)
        if self._callbacks:
            self._call_when_ready()
        return found

    def _call_when_ready(self) -> None:
        leaves, parameters = self.leaves, self.net.parameters
        total: Array = leaves.gradients
        if leaves.count > 1:  # by a power of two, which changes no bits, if it is one
            total *= 1 / leaves.count
            parameters.bind_gradients(total)
            for p in parameters.items:
                p.blob.gradient.fresh = NATIVE
        self.net.after_run()
        for _, on_gradients_ready in self._callbacks:
            on_gradients_ready()
        self.net.before_run()
        parameters.sync_gradients()
        if leaves.count > 1:
            total *= leaves.count

    def apply_update(self, squares: float | None = None) -> None:
        """Update the weights from the net's diffs, for loops that call net.forward and
        net.backward themselves; neither `iter` nor the diffs change."""  # fmt: skip
        if self._stepping:
            super().apply_update(squares)
            return
        if self.leaves.count > 1:
            raise SolverError(
                f"the batch of this solver is cut into {self.leaves.count} leaves, of which "
                f"solver.net sees one; use step() and add_callback(), or a solver with leaves=1"
            )
        self.net.before_run()
        self.leaves.gradients = self.net.parameters.gather_gradients()
        super().apply_update()
        self.net.after_run()

    # Weights.

    def restore(self, path: Path) -> None:
        """Go on from a .solverstate, Caffe's or ours: iteration, history, weights and data."""
        super().restore(os.fspath(path))
        self._place_data()

    def share_weights(self, net: Net) -> None:
        """Let another net use the weights that this solver trains."""
        net.share_with(self.net)


class SGDSolver(PycaffeSolver):
    type = "SGD"


class NesterovSolver(PycaffeSolver):
    type = "Nesterov"


class AdaGradSolver(PycaffeSolver):
    type = "AdaGrad"


class RMSPropSolver(PycaffeSolver):
    type = "RMSProp"


class AdaDeltaSolver(PycaffeSolver):
    type = "AdaDelta"


class AdamSolver(PycaffeSolver):
    type = "Adam"


_CLASSES: dict[str, type[PycaffeSolver]] = {
    kind.type: kind
    for kind in (
        SGDSolver, NesterovSolver, AdaGradSolver, RMSPropSolver, AdaDeltaSolver, AdamSolver,
    )
}  # fmt: skip


def get_solver(solver_file: Any, **options: Any) -> Solver:
    """The solver that a prototxt (or a SolverParameter) asks for."""
    param = _read(solver_file)
    return _class_for(param.type)(param, **options)


def _class_for(kind: str) -> type[PycaffeSolver]:
    """The class for a solver type, also for one that somebody else has registered."""
    RULES[kind]  # raises, listing the types that there are
    if kind not in _CLASSES:
        _CLASSES[kind] = type(f"{kind}Solver", (PycaffeSolver,), {"type": kind})
    return _CLASSES[kind]


def _read(solver: Any) -> Any:
    """A solver file's contents, or a copy of the caller's message."""
    if _is_path(solver):
        return read_param(os.fspath(solver))
    copy = schema.SolverParameter.FromString(solver.SerializeToString())
    return schema.upgrade_solver(copy)


def _is_path(solver: Any) -> bool:
    return isinstance(solver, str | os.PathLike)


def _options(param: Any, given: dict[str, Any]) -> SolverOptions:
    """The process-wide settings, with what the caller gives instead."""
    alone = given.get("communicator") is None
    if alone and solver_count() > 1:
        options = job_options(param)
    else:
        backend = given.get("backend") or default_backend()
        options = SolverOptions(backend, seed_for(param.random_seed))
    options = replace(
        options, make_net=Net, python_modules=python_modules_allowed(),
        output_folder=allowed_output(), **given,
    )  # fmt: skip
    if "observers" not in given and options.communicator.rank == 0:
        options = replace(options, observers=[CaffeLog(param.display)])
    return options


def _nothing() -> None:
    """Where a callback is not given."""

"""pycaffe's solver classes: one name per type over the one Solver."""

from __future__ import annotations

from typing import Any, ClassVar

from . import schema
from .errors import SolverError
from .layers import LAYERS
from .solver import Solver, read_param


class _TypedSolver(Solver):
    """A solver whose class decides its type, whatever the prototxt says."""

    type: ClassVar[str]

    def __init__(self, solver_file: str, **options: Any) -> None:
        param = read_param(solver_file)
        if param.HasField("type") and param.type != self.type:
            raise SolverError(
                f'{solver_file} asks for type "{param.type}", not "{self.type}"; use get_solver'
            )
        param.type = self.type
        super().__init__(param, **options)


class SGDSolver(_TypedSolver):
    type = "SGD"


class NesterovSolver(_TypedSolver):
    type = "Nesterov"


class AdaGradSolver(_TypedSolver):
    type = "AdaGrad"


class RMSPropSolver(_TypedSolver):
    type = "RMSProp"


class AdaDeltaSolver(_TypedSolver):
    type = "AdaDelta"


class AdamSolver(_TypedSolver):
    type = "Adam"


_CLASSES = (
    SGDSolver, NesterovSolver, AdaGradSolver, RMSPropSolver, AdaDeltaSolver, AdamSolver,
)  # fmt: skip


def get_solver(solver_file: str, **options: Any) -> Solver:
    """The solver that a prototxt asks for."""
    wanted = schema.read_solver(solver_file).type
    for kind in _CLASSES:
        if kind.type == wanted:
            return kind(solver_file, **options)
    return Solver(solver_file, **options)  # an unknown type: raises, listing those there are


def layer_type_list() -> list[str]:
    return list(LAYERS)

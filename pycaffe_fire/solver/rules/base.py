"""What an update rule is: its history, the settings it takes, and its formula."""

from __future__ import annotations

from typing import ClassVar

from ...backend.plans import Formula
from ...errors import SolverError
from ...registry import Registry
from ...schema.proto import SolverParameter
from ..schedules import check_schedules

__all__ = ["RULES", "Formula", "Rule"]


class Rule:
    """A solver type, registered under the name that a prototxt's `type` gives.

        def signed(xp, w, g, h, rate, momentum):
            h[...] = momentum * h + (1 - momentum) * g
            w -= rate * xp.sign(h)

        @RULES.register("Signed")
        class Signed(Rule):
            formula = Formula(signed)

            def numbers(self, iteration):
                return (self.param.momentum,)

    The formula gets `slots` history buffers, which start as zeros and which snapshots keep, then
    the learning rate and `numbers`; see Formula. `get_solver`, `fire_train` and the like find the
    rule by its name, once the module that registers it is imported.
    """

    formula: Formula
    slots: ClassVar[int] = 1
    has_momentum: ClassVar[bool] = False  # is the first slot a running mean of gradients?
    has_momentum_policy: ClassVar[bool] = False  # may its momentum change while training?
    can_decouple: ClassVar[bool] = False  # does it know the setting decoupled_decay?

    def __init__(self, param: SolverParameter) -> None:
        self.param = param
        if param.decoupled_decay and not self.can_decouple:
            able = " and ".join(f'"{name}"' for name in RULES if RULES[name].can_decouple)
            raise SolverError(
                f'decoupled_decay is an option of solver type {able}; "{param.type}" has none'
            )
        check_schedules(param, self.has_momentum_policy)
        self.check()

    def check(self) -> None:
        """Refuse settings that the rule cannot honour."""

    def numbers(self, iteration: int) -> tuple[float, ...]:
        """The formula's last arguments in this iteration."""
        return ()

    def refuse_momentum(self) -> None:
        if self.param.momentum:
            raise SolverError(
                f'solver type "{self.param.type}" has no momentum; remove momentum: '
                f"{self.param.momentum:g}"
            )


RULES: Registry[type[Rule]] = Registry("solver type", SolverError)

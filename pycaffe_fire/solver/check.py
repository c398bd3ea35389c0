"""Looks a project over before it trains: every problem of its files at once, not the first alone.

Nets are built layer by layer: a layer that fails is reported and left out with all that depend on
it, and the rest is built again. Nets that stand run one batch forward; weights are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from .. import schema
from ..backend.base import Backend
from ..errors import FireError
from ..layers import Context
from ..net.graph import filter_net
from ..net.net import Net
from ..schema.proto import NetParameter, NetState, SolverParameter
from ..schema.reader import read_all
from ..schema.verdicts import refusals
from .nets import FoundNet, find_test_nets, find_train_net
from .rates import learning_rate
from .rules import RULES


class Check:
    """Problems found so far, each once, and what was looked at."""

    def __init__(self, backend: Backend, python_modules: bool = False) -> None:
        self.backend = backend
        self._context = Context(python_modules=python_modules)
        self.problems: list[str] = []
        self.seen: list[str] = []

    def _add(self, problem: object) -> None:
        if str(problem) not in self.problems:
            self.problems.append(str(problem))

    def _try(self, look: Callable[[], object]) -> bool:
        try:
            look()
        except FireError as error:
            self._add(error)
            return False
        return True

    def solver(self, path: str, state: NetState, weights: str = "") -> None:
        """A solver prototxt, all nets that it names, and the weights that training starts from."""
        param: SolverParameter = schema.SolverParameter()
        if not self._read(path, param):
            return
        for sentence in refusals(param):
            self._add(f"{path}: {sentence}")
        self._try(lambda: RULES[param.type](param))
        self._try(lambda: learning_rate(param, 0))
        files = [f for f in (param.net, param.train_net, *param.test_net) if f]
        sound = [self._read(file, schema.NetParameter()) for file in dict.fromkeys(files)]
        if not all(sound):
            return
        given = [file for file in (weights or ",".join(param.weights)).split(",") if file]
        for find in (lambda: [find_train_net(param, state)], lambda: find_test_nets(param)):
            found: list[FoundNet] = []
            self._try(lambda find=find, found=found: found.extend(find()))  # type: ignore[misc]
            for net in found:
                self.net(net.param, net.path or net.origin, given)

    def _read(self, path: str, message: SolverParameter | NetParameter) -> bool:
        """Report all that is wrong with the text of a file; may it be looked into further?"""
        wrong: list[str] = []
        fine = self._try(lambda: wrong.extend(read_all(path, message)))
        for problem in wrong:
            self._add(problem)
        self.seen.append(path)
        return fine and not wrong

    def net(self, param: NetParameter, source: str, weights: list[str]) -> None:
        """Build the net, run one batch if all of it stands, copy the weights."""
        whole = filter_net(param)
        for layer in whole.layer:
            for sentence in refusals(layer):
                self._add(f'{source}: layer "{layer.name}" ({layer.type}): {sentence}')
        left = schema.NetParameter()
        left.CopyFrom(whole)
        net = self._build(left, source)
        if net is None:
            return
        try:
            if len(left.layer) == len(whole.layer):
                self._try(net.run_forward)
            for file in weights:
                self._try(lambda file=file: net.copy_from(file))  # type: ignore[misc]
        finally:
            net.close()

    def _build(self, left: NetParameter, source: str) -> Net | None:
        """What stands of the net, or None; layers that do not are taken out of `left`."""
        while left.layer:
            try:
                return Net(left, self.backend, replace(self._context), source=source)
            except FireError as error:
                self._add(error)
                failed = getattr(error, "layer", None)
                if failed is None:
                    return None
                kept = list(_without(left, failed))
                if len(kept) == len(left.layer):
                    return None
                del left.layer[:]
                left.layer.extend(kept)
        return None


def _without(net: NetParameter, name: str) -> Iterator[schema.LayerParameter]:
    """Copies of the layers that do not depend on the named one."""
    lost: set[str] = set()
    for layer in net.layer:
        if layer.name == name or lost & set(layer.bottom):
            lost.update(layer.top)
        else:
            copy = schema.LayerParameter()
            copy.CopyFrom(layer)
            yield copy

"""Which nets a solver prototxt asks for: one to train, any number to test."""

from __future__ import annotations

from typing import Any

from .. import schema
from ..errors import SolverError


def _with_state(net: Any, *states: Any, phase: int) -> Any:
    """A copy of the net whose state is `phase` overlaid with its own and the given states."""
    made = schema.NetParameter()
    made.CopyFrom(net)
    made.state.Clear()
    made.state.phase = phase
    for state in (net.state, *states):
        made.state.MergeFrom(state)
    made.state.phase = phase
    return made


def train_net_param(solver: Any, cli_state: Any) -> Any:
    """The one training net; `cli_state` holds the level and stages of the command line."""
    fields = ["train_net_param", "train_net", "net_param", "net"]
    given = [f for f in fields if solver.HasField(f)]
    if len(given) != 1:
        raise SolverError(
            f"the solver needs exactly one of net, net_param, train_net and train_net_param, got "
            f"{' and '.join(given) or 'none'}"
        )
    value = getattr(solver, given[0])
    net = schema.read_net(value) if isinstance(value, str) else value
    made = _with_state(net, solver.train_state, cli_state, phase=schema.TRAIN)
    made.debug_info = made.debug_info or solver.debug_info
    return made


def test_net_params(solver: Any) -> list[Any]:
    """The test nets, in the order of test_iter."""
    nets = [*solver.test_net_param]
    nets += [schema.read_net(path) for path in solver.test_net]
    generic = None
    if solver.HasField("net_param"):
        generic = solver.net_param
    elif solver.HasField("net"):
        generic = schema.read_net(solver.net) if len(solver.test_iter) > len(nets) else None
    if generic is not None:
        nets += [generic] * (len(solver.test_iter) - len(nets))
    if len(nets) != len(solver.test_iter):
        raise SolverError(
            f"test_iter must be given once per test net: {len(nets)} net(s), "
            f"{len(solver.test_iter)} test_iter"
        )
    if nets and solver.test_interval < 1:
        raise SolverError("test nets need a test_interval of at least 1")
    if any(n < 1 for n in solver.test_iter):
        raise SolverError(f"test_iter must be at least 1, got {list(solver.test_iter)}")
    if solver.test_state and len(solver.test_state) != len(nets):
        raise SolverError(
            f"test_state must be given once per test net ({len(nets)}) or not at all, got "
            f"{len(solver.test_state)}"
        )
    states = solver.test_state or [schema.NetState()] * len(nets)
    made = [
        _with_state(net, state, phase=schema.TEST) for net, state in zip(nets, states, strict=True)
    ]
    for net in made:
        net.debug_info = net.debug_info or solver.debug_info
    return made

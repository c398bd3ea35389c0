"""Which nets a solver prototxt asks for: one to train, any number to test."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from math import gcd
from typing import NamedTuple

from .. import schema
from ..errors import NetError, SolverError
from ..installation import find_model_file
from ..layers import DataLayer, layer_class
from ..net.graph import filter_net
from ..net.synthetic import with_synthetic_data
from ..schema.proto import LayerParameter, NetParameter, NetState, SolverParameter


class FoundNet(NamedTuple):
    """A net the solver asks for, where it was found (as Caffe's log says) and its file, if any."""

    param: NetParameter
    origin: str
    path: str


def read_param(path: str) -> SolverParameter:
    """A solver prototxt; without a snapshot_prefix, snapshots go beside it under its name."""
    param = schema.read_solver(path)
    stem = os.path.splitext(path)[0]
    if not param.snapshot_prefix:
        param.snapshot_prefix = stem
    elif os.path.isdir(param.snapshot_prefix):
        param.snapshot_prefix = os.path.join(param.snapshot_prefix, os.path.basename(stem))
    return param


def _load(field: str, value: str | NetParameter) -> FoundNet:
    """The net in a solver's field: a file's path, or the net itself."""
    if not isinstance(value, str):
        return FoundNet(value, field, "")
    value = find_model_file(value)
    if not os.path.exists(value):
        raise SolverError(
            f'{field}: "{value}": no such file, looked from {os.getcwd()} (paths in a solver start '
            f"at the folder the command runs in)"
        )
    return FoundNet(schema.read_net(value), f"{field} file: {value}", value)


def _with_state(
    found: FoundNet, solver: SolverParameter, *states: NetState, phase: int
) -> FoundNet:
    """A copy of the net whose state is `phase` overlaid with its own and the given states."""
    net, made = found.param, schema.NetParameter()
    made.CopyFrom(net)
    made.state.Clear()
    made.state.phase = phase
    for state in (net.state, *states):
        made.state.MergeFrom(state)
    made.state.phase = phase
    if solver.debug_info:
        made.debug_info = True
    return found._replace(param=made)


def find_train_net(solver: SolverParameter, cli_state: NetState) -> FoundNet:
    """The one training net; `cli_state` holds the level and stages of the command line."""
    fields = ["train_net_param", "train_net", "net_param", "net"]
    given = [f for f in fields if solver.HasField(f)]
    if len(given) != 1:
        raise SolverError(
            f"the solver needs exactly one of net, net_param, train_net and train_net_param, got "
            f"{' and '.join(given) or 'none'}"
        )
    found = _load(given[0], getattr(solver, given[0]))
    return _with_state(found, solver, solver.train_state, cli_state, phase=schema.TRAIN)


def find_test_nets(solver: SolverParameter) -> list[FoundNet]:
    """The test nets, in the order of test_iter."""
    nets = [_load("test_net_param", net) for net in solver.test_net_param]
    nets += [_load("test_net", path) for path in solver.test_net]
    generic = next((f for f in ("net_param", "net") if solver.HasField(f)), None)
    if generic and len(solver.test_iter) > len(nets):
        found = _load(generic, getattr(solver, generic))
        nets += [found] * (len(solver.test_iter) - len(nets))
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
    return [
        _with_state(found, solver, state, phase=schema.TEST)
        for found, state in zip(nets, states, strict=True)
    ]


def training_batch(solver: SolverParameter, cli_state: NetState) -> int:
    """What the batches of all data layers of the training net can be cut by; 0 if none says."""
    net = filter_net(find_train_net(solver, cli_state).param)
    sizes = [layer_class(layer.type).batch_size(layer) for layer in net.layer if not layer.bottom]
    return gcd(*(size for size in sizes if size and size > 1))


def edit_training_data(
    solver: SolverParameter, cli_state: NetState, edit: Callable[[LayerParameter], None]
) -> SolverParameter:
    """A copy of the solver with its training net's data layers edited; test nets stay."""

    def edit_data(layer: LayerParameter) -> None:
        if issubclass(layer_class(layer.type), DataLayer):
            edit(layer)

    return edit_training_net(solver, cli_state, edit_data)


def edit_training_net(
    solver: SolverParameter, cli_state: NetState, edit: Callable[[LayerParameter], None]
) -> SolverParameter:
    """A copy of the solver with all layers of its training net edited; test nets stay."""
    train = find_train_net(solver, cli_state)
    made = schema.SolverParameter()
    made.CopyFrom(solver)
    generic = len(made.test_iter) - len(made.test_net) - len(made.test_net_param)
    if solver.HasField("net"):
        made.test_net.extend([solver.net] * generic)
    elif solver.HasField("net_param"):
        made.test_net_param.extend([solver.net_param] * generic)
    for field in ("net", "net_param", "train_net"):
        made.ClearField(field)
    made.train_net_param.CopyFrom(filter_net(train.param))
    for layer in made.train_net_param.layer:
        edit(layer)
    return made


def with_shuffling(solver: SolverParameter, cli_state: NetState) -> SolverParameter:
    """A copy of the solver that trains in a new order every epoch."""

    def edit(layer: LayerParameter) -> None:
        param = layer_class(layer.type).own_param(layer)
        if hasattr(param, "shuffle"):
            param.shuffle = True

    return edit_training_data(solver, cli_state, edit)


def without_data(
    solver: SolverParameter, cli_state: NetState, image: Sequence[int] | None = None
) -> SolverParameter:
    """A copy of the solver whose nets make up their data instead of reading it."""
    train, tests = find_train_net(solver, cli_state), find_test_nets(solver)
    made = schema.SolverParameter()
    made.CopyFrom(solver)
    for field in ("net", "net_param", "train_net", "test_net", "test_net_param", "test_state"):
        made.ClearField(field)
    made.train_net_param.CopyFrom(_synthetic(train, image))
    made.test_net_param.extend(_synthetic(found, image) for found in tests)
    return made


def _synthetic(found: FoundNet, image: Sequence[int] | None) -> NetParameter:
    try:
        return with_synthetic_data(filter_net(found.param), image)
    except NetError as error:
        raise NetError(f"{found.path or found.origin}: {error}") from None

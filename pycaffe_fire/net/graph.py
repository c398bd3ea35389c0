"""From a NetParameter to the layers that really run: phase rules, splits, fusions.

Everything here works on messages alone; no blob exists yet.
"""

from __future__ import annotations

from .. import schema
from ..errors import LayerError, NetError
from ..layers import Layer
from ..registry import did_you_mean
from ..schema.proto import LayerParameter, NetParameter, NetState, NetStateRule


def filter_net(net: NetParameter) -> NetParameter:
    """The net without the layers that its state (phase, level, stages) rules out."""
    filtered = schema.NetParameter()
    filtered.CopyFrom(net)
    del filtered.layer[:]
    for layer in net.layer:
        if layer.include and layer.exclude:
            raise NetError(
                f'layer "{layer.name}": give either include rules or exclude rules, not both'
            )
        wanted = not layer.include
        wanted &= not any(meets_rule(net.state, rule) for rule in layer.exclude)
        wanted |= any(meets_rule(net.state, rule) for rule in layer.include)
        if wanted:
            filtered.layer.add().CopyFrom(layer)
    return filtered


def meets_rule(state: NetState, rule: NetStateRule) -> bool:
    """Does a NetState satisfy every part of a NetStateRule?"""
    return not (
        (rule.HasField("phase") and rule.phase != state.phase)
        or (rule.HasField("min_level") and state.level < rule.min_level)
        or (rule.HasField("max_level") and state.level > rule.max_level)
        or any(stage not in state.stage for stage in rule.stage)
        or any(stage in state.stage for stage in rule.not_stage)
    )


def insert_splits(net: NetParameter) -> NetParameter:
    """The net with a Split layer after every top that several layers read, named as Caffe does."""
    producers: dict[str, tuple[int, int]] = {}
    sources: dict[tuple[int, int], tuple[int, int]] = {}
    readers: dict[tuple[int, int], int] = {}
    weights: dict[tuple[int, int], float] = {}
    for i, layer in enumerate(net.layer):
        for j, name in enumerate(layer.bottom):
            top = sources[i, j] = _producer(producers, name, j, layer)
            readers[top] = readers.get(top, 0) + 1
        for j, name in enumerate(layer.top):
            producers[name] = (i, j)
        for j, weight in enumerate(layer.loss_weight[: len(layer.top)]):
            if weight:  # being a loss is one more use of the blob
                weights[i, j] = weight
                readers[i, j] = readers.get((i, j), 0) + 1
    return _write_splits(net, sources, readers, weights)


def _producer(
    producers: dict[str, tuple[int, int]], name: str, index: int, layer: LayerParameter
) -> tuple[int, int]:
    if name not in producers:
        raise LayerError(
            layer.name,
            layer.type,
            f'no layer before it makes its bottom {index}, "{name}"'
            f"{did_you_mean(name, sorted(producers))}",
        )
    return producers[name]


def _write_splits(
    net: NetParameter,
    sources: dict[tuple[int, int], tuple[int, int]],
    readers: dict[tuple[int, int], int],
    weights: dict[tuple[int, int], float],
) -> NetParameter:
    result = schema.NetParameter()
    result.CopyFrom(net)
    del result.layer[:]
    taken: dict[tuple[int, int], int] = {}
    for i, original in enumerate(net.layer):
        layer = result.layer.add()
        layer.CopyFrom(original)
        for j in range(len(original.bottom)):
            top = sources[i, j]
            if readers[top] > 1:
                maker, blob = net.layer[top[0]].name, original.bottom[j]
                layer.bottom[j] = _split_blob(maker, blob, top[1], taken.get(top, 0))
                taken[top] = taken.get(top, 0) + 1
        for j, blob in enumerate(original.top):
            count = readers.get((i, j), 0)
            if count > 1:
                weight = weights.get((i, j), 0.0)
                _add_split(result, original.name, blob, j, count, weight)
                if weight:
                    layer.ClearField("loss_weight")
                    taken[i, j] = taken.get((i, j), 0) + 1
    return result


def _split_name(layer: str, blob: str, index: int) -> str:
    return f"{blob}_{layer}_{index}_split"


def _split_blob(layer: str, blob: str, index: int, number: int) -> str:
    return f"{_split_name(layer, blob, index)}_{number}"


def _add_split(
    net: NetParameter, layer: str, blob: str, index: int, count: int, loss_weight: float
) -> None:
    split = net.layer.add()
    split.name, split.type = _split_name(layer, blob, index), "Split"
    split.bottom.append(blob)
    for k in range(count):
        split.top.append(_split_blob(layer, blob, index, k))
        if loss_weight:
            split.loss_weight.append(loss_weight if k == 0 else 0.0)


def fusions(net: NetParameter, leading: dict[str, type[Layer]]) -> dict[int, tuple[int, ...]]:
    """Which layers can do the work of the in-place layers after them: {leader: followers}.

    `leading` are the types that can, each with the types that it fuses in that order, each at most
    once. After splits are inserted the first reader of a blob is its only one, so an in-place
    layer can join its producer wherever the two stand.
    """
    leader_of: dict[str, int] = {}
    groups: dict[int, tuple[int, ...]] = {}
    for i, layer in enumerate(net.layer):
        in_place = len(layer.bottom) == 1 and list(layer.bottom) == list(layer.top)
        leader = leader_of.get(layer.bottom[0]) if in_place else None
        if leader is not None and _joins(net, layer, leader, groups, leading):
            groups[leader] = (*groups.get(leader, ()), i)
            continue
        for name in layer.top:
            leader_of.pop(name, None)
        if layer.type in leading and len(layer.top) == 1 and leading[layer.type].can_lead(layer):
            leader_of[layer.top[0]] = i
    return groups


def _joins(
    net: NetParameter, layer: LayerParameter, leader: int, groups: dict[int, tuple[int, ...]],
    leading: dict[str, type[Layer]],
) -> bool:  # fmt: skip
    kind = leading[net.layer[leader].type]
    order = kind.fuses
    last = [net.layer[leader].type, *(net.layer[f].type for f in groups.get(leader, ()))][-1]
    still = order[order.index(last) + 1 :] if last in order else order
    return layer.type in still and kind.can_fuse(layer)

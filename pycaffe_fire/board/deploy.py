"""From a test net to one that answers for a single image: Input for data, scores for losses.

Works on messages alone. Layers that write files or run code of somebody's are left out or refused.
"""

from __future__ import annotations

from typing import Any

from .. import schema
from ..errors import NetError

# Losses, and the layer that gives what they compare with labels.
SCORES = {"SoftmaxWithLoss": "Softmax", "SigmoidCrossEntropyLoss": "Sigmoid"}
WRITERS = ("HDF5Output",)


def harmless(net: Any) -> Any:
    """A copy of the net that writes no files; one with Python layers is refused."""
    made = schema.NetParameter()
    made.CopyFrom(net)
    del made.layer[:]
    for layer in net.layer:
        if layer.type == "Python":
            raise NetError(
                f'layer "{layer.name}" (Python): the board runs no code of a net; use pycaffe'
            )
        if layer.type in WRITERS:
            continue
        kept = made.layer.add()
        kept.CopyFrom(layer)
        if kept.HasField("detection_output_param"):
            kept.detection_output_param.ClearField("save_output_param")
    return made


def without_splits(net: Any) -> Any:
    """A copy of the net as somebody would write it: blobs that several layers read have one
    name."""
    made = schema.NetParameter()
    made.CopyFrom(net)
    del made.layer[:]
    alias: dict[str, str] = {}
    for layer in net.layer:
        if layer.type == "Split":
            alias |= {top: alias.get(layer.bottom[0], layer.bottom[0]) for top in layer.top}
            continue
        kept = made.layer.add()
        kept.CopyFrom(layer)
        for i, name in enumerate(kept.bottom):
            kept.bottom[i] = alias.get(name, name)
    return made


def deploy_net(test: Any, shape: list[int]) -> Any:
    """The net for images of `shape` (channels, height, width), with the layers of a test net that
    need no labels and a score for its last loss."""
    net = without_splits(harmless(test))
    made = schema.NetParameter(name=net.name)
    made.state.phase = schema.TEST
    known: set[str] = set()
    score: Any = None
    for layer in net.layer:
        if not layer.bottom:
            if not known:
                known.add(_add_input(made, layer, shape))
            elif layer.type in ("Parameter", "PriorBox"):
                made.layer.add().CopyFrom(layer)
                known.update(layer.top)
        elif set(layer.bottom) <= known:
            made.layer.add().CopyFrom(layer)
            known.update(layer.top)
        elif layer.type in SCORES and layer.bottom[0] in known:
            score = layer
    if not known:
        raise NetError(f'net "{net.name}" has no layer without bottoms that an image could replace')
    if score is not None and not _scored(made, score):
        _add_score(made, score)
    return made


def _add_input(net: Any, layer: Any, shape: list[int]) -> str:
    added = net.layer.add(name=layer.name, type="Input", top=[layer.top[0]])
    added.input_param.shape.add(dim=[1, *shape])
    return str(layer.top[0])


def _scored(net: Any, loss: Any) -> bool:
    return any(n.type == SCORES[loss.type] and n.bottom[0] == loss.bottom[0] for n in net.layer)


def _add_score(net: Any, loss: Any) -> None:
    taken = {top for layer in net.layer for top in layer.top}
    top = "prob" if "prob" not in taken else f"{loss.name}_prob"
    added = net.layer.add(name=top, type=SCORES[loss.type], bottom=[loss.bottom[0]], top=[top])
    if loss.HasField("softmax_param"):
        added.softmax_param.CopyFrom(loss.softmax_param)

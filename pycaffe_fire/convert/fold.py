"""BatchNorm and Scale folded into the layer before them, where that is exact."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import schema
from .averages import averages
from .model import Model
from .prune import with_layers

Floats = NDArray[np.float32]
_LEADERS = {
    "Convolution": "convolution_param",
    "DepthwiseConvolution": "convolution_param",
    "ConvolutionDepthwise": "convolution_param",
    "Deconvolution": "convolution_param",
    "InnerProduct": "inner_product_param",
}


def fold_batch_norm(model: Model) -> Model:
    """Every BatchNorm and channelwise Scale in weights of the layer before it, if only it reads
    that layer's top; the rest stays."""
    folded = _Folding(model)
    return folded.run()


class _Folding:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.weights = {name: list(blobs) for name, blobs in model.weights.items()}
        self.readers = _reads(model.param)
        self.notes: list[str] = []
        self.folded: set[str] = set()
        self.leaders: dict[str, Any] = {}  # blobs to the layers that can take a factor
        shared = [spec.name for layer in model.param.layer for spec in layer.param if spec.name]
        self.shared = {name for name, count in Counter(shared).items() if count > 1}

    def run(self) -> Model:
        kept: list[Any] = []
        for original in self.model.param.layer:
            layer = schema.LayerParameter()
            layer.CopyFrom(original)
            leader = self.leaders.get(layer.bottom[0]) if len(layer.bottom) == 1 else None
            if leader is not None and self._fold(leader, layer):
                continue
            for name in layer.top:
                self.leaders.pop(name, None)
            kept.append(layer)
            if self._leads(layer):
                self.leaders[layer.top[0]] = layer
        made = with_layers(self.model, kept, self.notes)
        made.weights = {name: self.weights[name] for name in made.weights}
        return made

    def _leads(self, layer: Any) -> bool:
        if layer.type not in _LEADERS or len(layer.bottom) != 1 or layer.name not in self.weights:
            return False
        return getattr(layer, _LEADERS[layer.type]).axis == 1 and not self._shares(layer)

    def _shares(self, layer: Any) -> bool:
        return any(spec.name in self.shared for spec in layer.param)

    def _fold(self, leader: Any, layer: Any) -> bool:
        """Take the layer's factor and offset into the leader's weights, if it has such."""
        top = leader.top[0]
        in_place = list(layer.bottom) == list(layer.top)
        if self.readers[top] > 1 and not (in_place and self._first_reader(layer, top)):
            return False
        if self._shares(layer) or (pair := self._affine(leader, layer)) is None:
            return False
        self._apply(leader, *pair)
        self.folded.add(layer.name)
        self.notes.append(f'{layer.type} "{layer.name}" folded into "{leader.name}"')
        del self.leaders[top]
        leader.top[0] = layer.top[0]
        self.leaders[leader.top[0]] = leader
        return True

    def _first_reader(self, layer: Any, blob: str) -> bool:
        """Does an in-place layer stand before all other readers of its blob?"""
        readers = [
            each
            for each in self.model.param.layer
            if blob in each.bottom and each.name not in self.folded
        ]
        return bool(readers[0].name == layer.name)

    def _affine(self, leader: Any, layer: Any) -> tuple[Floats, Floats] | None:
        """(factor, offset) per channel of a BatchNorm or Scale layer."""
        blobs = self.weights.get(layer.name, [])
        channels = getattr(leader, _LEADERS[leader.type]).num_output
        if layer.type == "BatchNorm" and len(blobs) == 3:
            param = layer.batch_norm_param
            if param.HasField("use_global_stats") and not param.use_global_stats:
                return None
            mean, variance = averages(blobs)
            factor = 1 / np.sqrt(variance.astype(np.float64) + param.eps)
            offset = -mean * factor
        elif layer.type == "Scale" and blobs and blobs[0].size == channels:
            if layer.scale_param.axis != 1 or layer.scale_param.num_axes != 1:
                return None
            factor = blobs[0].reshape(-1).astype(np.float64)
            offset = blobs[1].reshape(-1).astype(np.float64) if len(blobs) > 1 else 0 * factor
        else:
            return None
        return (factor, offset) if factor.size == channels else None

    def _apply(self, leader: Any, factor: Any, offset: Any) -> None:
        param, blobs = getattr(leader, _LEADERS[leader.type]), self.weights[leader.name]
        weights = blobs[0].astype(np.float64)
        if leader.type == "Deconvolution":  # (inputs, outputs / group, ...): outputs of each group
            group, shape = int(param.group), weights.shape
            parts = weights.reshape(group, shape[0] // group, shape[1], -1)
            parts = parts * factor.reshape(group, 1, shape[1], 1)
            weights = parts.reshape(shape)
        elif leader.type == "InnerProduct" and param.transpose:
            weights = weights * factor
        else:
            rows = weights.reshape(len(factor), -1) * factor[:, None]
            weights = rows.reshape(weights.shape)
        bias = blobs[1].reshape(-1).astype(np.float64) if param.bias_term else 0
        param.bias_term = True
        self.weights[leader.name] = [
            np.float32(weights), np.float32(bias * factor + offset)
        ]  # fmt: skip


def _reads(param: Any) -> Counter[str]:
    """How many layers read each blob."""
    return Counter(name for layer in param.layer for name in layer.bottom)

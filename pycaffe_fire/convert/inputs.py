"""Inputs to compare two forms of a net with: images that look real, and values below zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..layers import Layer
from ..net.net import Net

Floats = NDArray[np.float32]
Shape = tuple[int, ...]
_LEAST = 8  # pixels of a side of what is taken for an image

Draw = Callable[[np.random.Generator, Shape, Layer, Net], Any]


def _cont(rng: np.random.Generator, shape: Shape, layer: Layer, net: Net) -> Any:
    values = (rng.random(shape) > 0.3).astype(float)
    values[0] = 0  # a pass begins without the states of one before
    return values


def _clip(rng: np.random.Generator, shape: Shape, layer: Layer, net: Net) -> Any:
    values = (rng.random(shape) > 0.3).astype(float)
    values[: layer.param.lstm_param.batch_size] = 0
    return values


def _regions(rng: np.random.Generator, shape: Shape, layer: Layer, net: Net) -> Any:
    """Rows of image and corners that lie within the map, in the image's pixels."""
    field = "roi_pooling_param" if layer.type == "ROIPooling" else "psroi_pooling_param"
    images, _, height, width = net.blobs[layer.bottom[0]].shape
    scale = getattr(layer.param, field).spatial_scale
    rows = np.empty((shape[0], 5))
    rows[:, 0] = rng.integers(0, images, shape[0])
    for low, size in ((1, width), (2, height)):
        ends = np.sort(rng.uniform(0, size / scale, (shape[0], 2)), axis=1)
        rows[:, low], rows[:, low + 2] = ends.T
    return rows.reshape(shape)


def _places(rng: np.random.Generator, shape: Shape, layer: Layer, net: Net) -> Any:
    height, width = net.blobs[layer.top[0]].shape[2:]
    planes = [rng.permutation(height * width)[: shape[2] * shape[3]] for _ in range(shape[0])]
    return np.stack([np.tile(p, (shape[1], 1)) for p in planes]).reshape(shape)


# What a bottom of a layer must hold, by type and number.
_SPECIAL: dict[tuple[str, int], Draw] = {
    ("Embed", 0): lambda rng, shape, layer, net: rng.integers(
        0, layer.param.embed_param.input_dim, shape
    ),
    ("BatchReindex", 1): lambda rng, shape, layer, net: rng.integers(
        0, net.blobs[layer.bottom[0]].shape[0], shape
    ),
    ("LSTM", 1): _cont,
    ("Lstm", 1): _clip,
    ("RNN", 1): _cont,
    ("LSTMUnit", 2): lambda rng, shape, layer, net: rng.random(shape) > 0.3,
    ("ROIPooling", 1): _regions,
    ("PSROIPooling", 1): _regions,
    ("Upsample", 1): _places,
    ("Unpooling", 1): _places,
    ("Log", 0): lambda rng, shape, layer, net: rng.uniform(0.5, 2, shape),
}


def make_inputs(net: Net, seed: int, pixels: bool = False) -> dict[str, Floats]:
    """A value for every input in its present shape; even seeds give images where they fit.

    With `pixels` the first input is of whole numbers from 0 to 255.
    """
    rng = np.random.default_rng(seed)
    made = {}
    for number, name in enumerate(net.inputs):
        shape = tuple(net.blobs[name].shape)
        if pixels and number == 0:
            values = np.rint(np.clip(_image(rng, shape) + 127, 0, 255))
        else:
            values = _values(rng, net, name, shape, images=seed % 2 == 0)
        made[name] = np.ascontiguousarray(values, np.float32)
    return made


def _values(rng: np.random.Generator, net: Net, name: str, shape: Shape, images: bool) -> Any:
    for index, (layer, bottoms) in enumerate(zip(net.layers, net.bottoms, strict=True)):
        if layer.type == "Filter" and _comes_from(net, bottoms[-1].name, name, index):
            return rng.integers(0, 2, shape)
        for number, blob in enumerate(bottoms):
            special = _SPECIAL.get((layer.type, number))
            if special and _comes_from(net, blob.name, name, index):
                return special(rng, shape, layer, net)
    if images and len(shape) == 4 and min(shape[2:]) >= _LEAST:
        return _image(rng, shape)
    return rng.normal(size=shape) - (0 if images else 0.5)


def _comes_from(net: Net, blob: str, name: str, before: int) -> bool:
    """Is the blob this input, or a Split's copy of it?"""
    for layer in reversed(net.layers[:before]):
        if layer.type == "Split" and blob in layer.top:
            blob = layer.bottom[0]
    return blob == name


def _image(rng: np.random.Generator, shape: Shape) -> Any:
    """Smooth areas, edges and noise, from about -128 to 127."""
    rows, columns = (np.linspace(0, 1, size) for size in shape[2:])
    waves = rng.uniform(1, 9, (*shape[:2], 2, 1, 1))
    smooth = np.sin(waves[:, :, 0] * rows[:, None]) * np.cos(waves[:, :, 1] * columns)
    edges = np.sign(rows[:, None] - columns + rng.normal(0, 0.3, (*shape[:2], 1, 1)))
    return 60 * smooth + 40 * edges + rng.normal(0, 10, shape)

"""Fillers: how new weights start. Values depend on seed, layer and index alone."""

from __future__ import annotations

from collections.abc import Callable
from math import prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backend.blob import Blob
from ..backend.random import normal, uniform
from ..backend.sizes import memory_shortage
from ..registry import Registry

Floats = NDArray[np.float32]
Filler = Callable[[tuple[int, ...], Any, int, int], Floats]  # shape, param, key, threads

BYTES = 12  # per element: the blob, its new values, and the random bits that they are made of

FILLERS: Registry[Filler] = Registry("filler type", ValueError)


def fill(blob: Blob, param: Any, key: int) -> None:
    """Fill `blob.data` as the FillerParameter says, drawing from the stream `key`."""
    filler = FILLERS[param.type]
    if param.sparse != -1 and param.type != "gaussian":
        raise ValueError(f'sparse is not supported by the "{param.type}" filler')
    if param.scale != 1 and param.type != "msra":
        raise ValueError(
            f'scale is for the "msra" filler; the "{param.type}" filler has value, std, min or max'
        )
    if param.type == "constant" and param.value == 0:
        blob.value.clear()  # zeros that take no memory until they are used
        return
    if not blob.count:
        return
    if shortage := memory_shortage(BYTES * blob.count):
        raise ValueError(f"filling {blob.dims()} elements {shortage}; make the layer smaller")
    values = filler(blob.shape, param, key, blob.backend.threads)
    blob.data[...] = blob.backend.xp.asarray(values.reshape(blob.shape))


def _fan(shape: tuple[int, ...], variance_norm: int) -> float:
    """Inputs (default), outputs or their average that feed one weight."""
    count = prod(shape)
    fan_in = count / shape[0] if shape else 1.0
    fan_out = count / shape[1] if len(shape) > 1 else float(count)
    return (fan_in, fan_out, (fan_in + fan_out) / 2)[variance_norm]


@FILLERS.register("constant")
def constant(shape: tuple[int, ...], param: Any, key: int, threads: int) -> Floats:
    return np.full(shape, param.value, np.float32)


@FILLERS.register("uniform")
def uniform_filler(shape: tuple[int, ...], param: Any, key: int, threads: int) -> Floats:
    return _between(shape, param.min, param.max, key, threads)


@FILLERS.register("whole")
def whole(shape: tuple[int, ...], param: Any, key: int, threads: int) -> Floats:
    """Whole numbers from min to below max, as labels are (not in Caffe)."""
    values = np.floor(_between(shape, param.min, param.max, key, threads))
    kept: Floats = np.minimum(values, np.float32(param.max - 1))
    return kept


@FILLERS.register("objects")
def objects(shape: tuple[int, ...], param: Any, key: int, threads: int) -> Floats:
    """Rows of image, label, instance, box, difficult; `value` objects of each image in turn, with
    labels from min to below max (not in Caffe)."""
    if len(shape) != 2 or shape[1] != 8 or param.value < 1:
        raise ValueError(f"the objects filler needs rows of 8 and a value of 1 or more: {shape}")
    rows = np.zeros(shape, np.float32)
    rows[:, 0] = np.arange(len(rows)) // int(param.value)
    rows[:, 1] = whole((len(rows),), param, key, threads)
    places = uniform(key, 1, 0, 4 * len(rows)).reshape(-1, 2, 2)
    rows[:, 3:5] = places[:, 0] * np.float32(0.6)
    rows[:, 5:7] = rows[:, 3:5] + np.float32(0.15) + places[:, 1] * np.float32(0.25)
    return rows


def _between(shape: tuple[int, ...], low: float, high: float, key: int, threads: int) -> Floats:
    values = uniform(key, 0, 0, prod(shape), threads)
    values *= np.float32(high - low)
    values += np.float32(low)
    return values


@FILLERS.register("gaussian")
def gaussian(shape: tuple[int, ...], param: Any, key: int, threads: int) -> Floats:
    """Normal with mean and std; `sparse` keeps on average that many inputs of each output."""
    values = normal(key, 0, 0, prod(shape), threads)
    values *= np.float32(param.std)
    values += np.float32(param.mean)
    if param.sparse >= 0:
        keep = param.sparse / shape[0] if shape else 1.0
        values = np.where(uniform(key, 1, 0, prod(shape), threads) < keep, values, np.float32(0))
    return values


@FILLERS.register("xavier")
def xavier(shape: tuple[int, ...], param: Any, key: int, threads: int) -> Floats:
    """Uniform with variance 1/n (Glorot and Bengio)."""
    limit = sqrt(3.0 / _fan(shape, param.variance_norm))
    return _between(shape, -limit, limit, key, threads)


@FILLERS.register("msra")
def msra(shape: tuple[int, ...], param: Any, key: int, threads: int) -> Floats:
    """Normal with variance 2 / ((1 + alpha^2) n) for PReLUs that start at alpha (He et al.).

    `scale` multiplies the values, as in Intel's fork.
    """
    std = param.scale * sqrt(2.0 / _fan(shape, param.variance_norm) / (1 + param.alpha**2))
    values = normal(key, 0, 0, prod(shape), threads)
    values *= np.float32(std)
    return values


@FILLERS.register("positive_unitball")
def positive_unitball(shape: tuple[int, ...], param: Any, key: int, threads: int) -> Floats:
    """Uniform in [0, 1), each output's inputs scaled to sum to 1."""
    values = uniform(key, 0, 0, prod(shape), threads).reshape(*shape[:1], -1)
    normed: Floats = values / values.sum(axis=-1, keepdims=True)
    return normed


@FILLERS.register("bilinear")
def bilinear(shape: tuple[int, ...], param: Any, key: int, threads: int) -> Floats:
    """Weights of bilinear interpolation, for a deconvolution that upsamples."""
    if len(shape) != 4 or shape[2] != shape[3]:
        raise ValueError(f"the bilinear filler needs 4 axes and square filters, got {list(shape)}")
    size = shape[3]
    factor = (size + 1) // 2
    centre = (size - 1) / (2.0 * factor)
    line = 1 - np.abs(np.arange(size) / factor - centre)
    weights: Floats = np.broadcast_to(np.outer(line, line), shape).astype(np.float32)
    return weights

"""Layers of the forks against their definitions, written down once more with plain loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, log, sqrt, tanh
from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend.numpy import NumPyBackend
from tests.layers.case import Array, Case, Trial
from tests.layers.test_contract import ROWS

Definition = Callable[[Case, Sequence[Array]], Array]


def each(function: Callable[[float], float]) -> Definition:
    return lambda case, values: np.vectorize(function)(values[0])


def normed(rows: Array, eps: float) -> Array:
    out = np.empty_like(rows)
    for i, row in enumerate(rows):
        variance = sum((v - row.mean()) ** 2 for v in row) / len(row)
        out[i] = (row - row.mean()) / sqrt(variance + eps)
    return out


def group_norm(groups: int, eps: float = 1e-5) -> Definition:
    return lambda case, values: np.stack(
        [normed(v.reshape(groups, -1), eps).reshape(v.shape) for v in values[0]]
    )


def layer_norm(axis: int, eps: float) -> Definition:
    def defined(case: Case, values: Sequence[Array]) -> Array:
        shape = values[0].shape
        rows = int(np.prod(shape[:axis]))
        return normed(values[0].reshape(rows, -1), eps).reshape(shape)

    return defined


def matmul(turn_a: bool, turn_b: bool) -> Definition:
    def defined(case: Case, values: Sequence[Array]) -> Array:
        a, b = (v.reshape(-1, *v.shape[-2:]) for v in values)
        made = []
        for x, y in zip(a, b, strict=True):
            x, y = x.T if turn_a else x, y.T if turn_b else y
            made.append([[sum(p * q for p, q in zip(r, c, strict=True)) for c in y.T] for r in x])
        return np.array(made).reshape(*values[0].shape[:-2], len(made[0]), -1)

    return defined


def flip(height: bool, width: bool) -> Definition:
    def defined(case: Case, values: Sequence[Array]) -> Array:
        x, y = values[0], np.empty_like(values[0])
        h, w = x.shape[2:]
        for i, j in np.ndindex(h, w):
            y[:, :, i, j] = x[:, :, h - 1 - i if height else i, w - 1 - j if width else j]
        return y

    return defined


def triplet(margin: float) -> Definition:
    def defined(case: Case, values: Sequence[Array]) -> Array:
        num = len(values[0])
        weights = values[3].reshape(-1) if len(values) > 3 else np.ones(num)
        total = 0.0
        for a, p, n, w in zip(*values[:3], weights, strict=True):
            total += w * max(0.0, margin + ((a - p) ** 2).sum() - ((a - n) ** 2).sum())
        return np.array(total / (2 * num))

    return defined


def focal(alpha: float, gamma: float, ignore: int | None = None) -> Definition:
    def defined(case: Case, values: Sequence[Array]) -> Array:
        scores, labels = values
        classes = scores.shape[-2] if ignore is not None else scores.shape[-1]
        rows = np.moveaxis(scores, -2, -1) if ignore is not None else scores
        total, count = 0.0, 0
        for row, label in zip(rows.reshape(-1, classes), labels.reshape(-1), strict=True):
            if label == ignore:
                continue
            p = exp(row[int(label)]) / sum(exp(v) for v in row)
            total -= alpha * (1 - p) ** gamma * log(p)
            count += 1
        return np.array(total / count)

    return defined


DEFINED: dict[str, Definition] = {
    "mish": each(lambda x: x * tanh(log(1 + exp(x)))),
    "hsigmoid": each(lambda x: min(max(x + 3, 0), 6) / 6),
    "hswish": each(lambda x: x * min(max(x + 3, 0), 6) / 6),
    "group norm": group_norm(2),
    "group norm of one group": group_norm(1, 0.1),
    "group norm of vectors": group_norm(3),
    "layer norm": layer_norm(1, 1e-5),
    "layer norm of the last axis": layer_norm(2, 0.01),
    "matmul": matmul(False, False),
    "matmul transposed": matmul(True, True),
    "matmul of single matrices": matmul(False, True),
    "flip": flip(False, True),
    "flip_height": flip(True, False),
    "flip_both": flip(True, True),
    "flip_nothing": flip(False, False),
    "triplet": triplet(0.4),
    "triplet_weighted": triplet(1.0),
    "focal": focal(0.25, 2),
    "focal_of_pixels": focal(0.75, 0.5, ignore=1),
}
CASES = {case.name: case for case in ROWS}


@pytest.mark.parametrize("name", DEFINED)
def test_forward_is_the_definition(name: str) -> None:
    case = CASES[name]
    values = case.values()
    top = Trial(case, NumPyBackend(dtype=np.float64)).forward(values)[0]
    np.testing.assert_allclose(top, DEFINED[name](case, values), rtol=1e-6, atol=1e-9)


def pooled(x: Array, kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int]) -> Any:
    """(maxima, averages) over windows of three axes, clipped as Caffe clips those of two."""
    outs = [
        -(-(n + 2 * p - k) // s) + 1
        for n, k, s, p in zip(x.shape[2:], kernel, stride, pad, strict=True)
    ]
    high, mean = np.empty((*x.shape[:2], *outs)), np.empty((*x.shape[:2], *outs))
    for place in np.ndindex(*outs):
        start = [o * s - p for o, s, p in zip(place, stride, pad, strict=True)]
        padded = [
            min(a + k, n + p) - a
            for a, k, n, p in zip(start, kernel, x.shape[2:], pad, strict=True)
        ]
        inside = tuple(
            slice(max(a, 0), min(a + k, n))
            for a, k, n in zip(start, kernel, x.shape[2:], strict=True)
        )
        seen, out = (slice(None), slice(None), *inside), (slice(None), slice(None), *place)
        cells = x[seen].reshape(*x.shape[:2], -1)
        high[out] = cells.max(axis=2)
        mean[out] = cells.sum(axis=2) / np.prod(padded)
    return high, mean


def test_pooling_of_volumes() -> None:
    values = CASES["max pooling of volumes"].values()
    high, mean = pooled(values[0], (2, 3, 3), (1, 2, 2), (0, 1, 1))
    for name, want in (("max", high), ("ave", mean)):
        case = CASES[f"{name} pooling of volumes"]
        top = Trial(case, NumPyBackend(dtype=np.float64)).forward(values)[0]
        np.testing.assert_allclose(top, want, rtol=1e-6)


def test_a_volume_of_depth_1_pools_as_an_image() -> None:
    flat = CASES["max pooling overlapping"]
    values = flat.values()
    want = Trial(flat, NumPyBackend()).forward(values)[0]
    text = "pooling_param { kernel_size_3d: 1 kernel_size_3d: 3 kernel_size_3d: 3 stride: 2 }"
    deep = Case("deep", "Pooling", text, (flat.shapes[0][:2] + (1,) + flat.shapes[0][2:],))
    got = Trial(deep, NumPyBackend()).forward([values[0][:, :, None]])[0]
    np.testing.assert_array_equal(got[:, :, 0], want)


def test_spatial_dropout_drops_whole_channels() -> None:
    shape = (40, 50, 3, 4)
    case = Case(
        "spatial", "SpatialDropout", "spatial_dropout_param { dropout_ratio: 0.3 }", (shape,)
    )
    top = Trial(case, NumPyBackend()).forward([np.ones(shape)])[0].reshape(40, 50, 12)
    assert (top == top[:, :, :1]).all()
    kept = top[:, :, 0] != 0
    np.testing.assert_allclose(top[kept], 1 / 0.7, rtol=1e-6)
    assert kept.mean() == pytest.approx(0.7, abs=4 * sqrt(0.21 / kept.size))

"""Lstm, the layer of caffe-lstm, against a definition that goes through rows one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pycaffe_fire import Net, schema
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.layers import Context
from tests.layers.case import Array, Shape

VALUES, WIDTH = 3, 4
FILLERS = 'weight_filler { type: "gaussian" std: 0.7 } bias_filler { type: "gaussian" std: 0.7 }'


def net(shape: Shape, extra: str = "", clip: Shape | None = None, width: int = WIDTH) -> Net:
    text = "force_backward: true "
    for name, dims in (("x", shape), ("clip", clip)):
        if dims is not None:
            text += f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ '
            text += " ".join(f"dim: {d}" for d in dims) + " } } }\n"
    bottoms = 'bottom: "x"' + ' bottom: "clip"' * (clip is not None)
    text += f'layer {{ name: "lstm" type: "Lstm" {bottoms} top: "h" '
    text += f"lstm_param {{ num_output: {width} {FILLERS} {extra} }} }}"
    param = schema.parse_text(text, schema.NetParameter())
    backend = NumPyBackend(dtype=np.float64)
    return Net(param, schema.TRAIN, backend=backend, context=Context(seed=5))


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


class Definition:
    """Streams one after the other, step by step: h, and the gradients of sum(d * h)."""

    def __init__(self, weights: list[Array], streams: int, bound: float = 0) -> None:
        self.w_i, self.w_h, self.bias = weights
        self.streams, self.bound = streams, bound
        self.width = self.w_h.shape[1]

    def forward(self, x: Array, clip: Array | None, before: Any = None) -> Array:
        """x: rows x values. `before` is what `after` was at the end of another pass."""
        self.x, self.tape = x, {}
        out = np.zeros((len(x), self.width))
        self.after = []
        for n in range(self.streams):
            h, c = (np.zeros(self.width), np.zeros(self.width)) if before is None else before[n]
            for t, row in enumerate(range(n, len(x), self.streams)):
                goes_on = clip[row] != 0 if clip is not None else t > 0
                if not goes_on:
                    h, c = np.zeros_like(h), np.zeros_like(c)
                gates = (self.w_i @ x[row] + self.bias + self.w_h @ h).reshape(4, -1)
                i, f, o, g = *sigmoid(gates[:3]), np.tanh(gates[3])
                new = f * c + i * g
                self.tape[row] = (goes_on, h, c, i, f, o, g, new)
                h, c = o * np.tanh(new), new
                out[row] = h
            self.after.append((h, c))
        return out

    def backward(self, d: Array) -> tuple[Array, list[Array]]:
        d_x = np.zeros_like(self.x)
        d_w = [np.zeros_like(w) for w in (self.w_i, self.w_h, self.bias)]
        for n in range(self.streams):
            d_h, d_c = np.zeros(self.width), np.zeros(self.width)
            for row in reversed(range(n, len(d), self.streams)):
                goes_on, h, c, i, f, o, g, new = self.tape[row]
                d_h = d_h + d[row]
                d_c = d_c + d_h * o * (1 - np.tanh(new) ** 2)
                sums = np.stack([
                    d_c * g * i * (1 - i), d_c * c * f * (1 - f),
                    d_h * np.tanh(new) * o * (1 - o), d_c * i * (1 - g * g),
                ]).reshape(-1)  # fmt: skip
                if self.bound:
                    sums = sums.clip(-self.bound, self.bound)
                for into, part in zip(
                    d_w, (np.outer(sums, self.x[row]), np.outer(sums, h), sums), strict=True
                ):
                    into += part
                d_x[row] = sums @ self.w_i
                d_h = goes_on * (sums @ self.w_h)
                d_c = goes_on * d_c * f
        return d_x, d_w


def compare(made: Net, definition: Definition, before: Any = None, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    x, clip = made.blobs["x"], made.blobs.get("clip")
    x.data[...] = rng.normal(size=x.shape)
    if clip is not None:
        clip.data[...] = 2 * rng.integers(0, 2, clip.shape)  # whatever is not 0 goes on
    top = made.blobs["h"]
    made.run_forward()
    rows = np.array(x.data).reshape(-1, definition.w_i.shape[1])
    indicators = None if clip is None else np.array(clip.data).reshape(-1)
    want = definition.forward(rows, indicators, before)
    np.testing.assert_allclose(np.reshape(top.data, want.shape), want, atol=1e-12)
    d = np.asarray(rng.normal(size=want.shape))
    top.diff[...] = d.reshape(top.shape)
    made.clear_param_diffs()
    made.run_backward()
    d_x, d_w = definition.backward(d)
    np.testing.assert_allclose(np.reshape(x.diff, d_x.shape), d_x, atol=1e-12)
    for blob, gradient in zip(made.params["lstm"], d_w, strict=True):
        np.testing.assert_allclose(blob.diff, gradient, atol=1e-11)


def weights_of(made: Net) -> list[Array]:
    return [np.array(blob.data) for blob in made.params["lstm"]]


@pytest.mark.parametrize(
    ("shape", "extra", "clip", "streams", "top"),
    [
        ((6, 3), "", None, 1, (6, 4)),
        ((6, 3), "", (6,), 1, (6, 4)),
        ((6, 3), "batch_size: 2", None, 2, (6, 4)),
        ((6, 1, 3, 1), "batch_size: 3", (6, 1), 3, (6, 4)),
        ((6, 3, 1), "batch_size: 2", None, 2, (6, 4)),
        ((5, 2, 3), "", (5, 2), 2, (5, 2, 4)),
        ((1, 3), "", None, 1, (1, 4)),
    ],
)
def test_forward_and_gradients_are_the_definition(
    shape: Shape, extra: str, clip: Shape | None, streams: int, top: Shape
) -> None:
    made = net(shape, extra, clip)
    assert [blob.shape for blob in made.params["lstm"]] == [(16, 3), (16, 4), (16,)]
    assert made.blobs["h"].shape == top
    assert all(np.abs(w).max() > 0.5 for w in weights_of(made))  # as the fillers say
    compare(made, Definition(weights_of(made), streams))


def test_with_clips_a_pass_goes_on_where_the_last_one_ended() -> None:
    made = net((6, 3), "batch_size: 2", (6,))
    definition = Definition(weights_of(made), 2)
    compare(made, definition, seed=1)
    compare(made, definition, definition.after, seed=2)


def test_without_clips_every_pass_begins_with_zeros() -> None:
    made = net((6, 3), "batch_size: 2")
    for seed in (1, 2):
        compare(made, Definition(weights_of(made), 2), seed=seed)
    assert not made.layers[-1].in_sequence


def test_gradients_of_the_sums_are_cut() -> None:
    made = net((6, 3), "batch_size: 2 clipping_threshold: 0.0625")
    definition = Definition(weights_of(made), 2, 0.0625)
    compare(made, definition)
    cut = [np.array(blob.diff) for blob in made.params["lstm"]]
    definition.bound = 0
    free = definition.backward(np.random.default_rng(0).normal(size=(6, 4)))[1]
    assert not np.allclose(cut[2], free[2], atol=1e-3)


def test_agrees_with_caffes_own_lstm() -> None:
    """The same arithmetic with weights in another order (T x N x D and indicators)."""
    ours = net((5, 2, 3), clip=(5, 2))
    text = "force_backward: true "
    for name, dims in (("x", "dim: 5 dim: 2 dim: 3"), ("cont", "dim: 5 dim: 2")):
        text += f'layer {{ name: "{name}" type: "Input" top: "{name}" '
        text += f"input_param {{ shape {{ {dims} }} }} }}"
    text += 'layer { name: "l" type: "LSTM" bottom: "x" bottom: "cont" top: "h" '
    param = schema.parse_text(text + "recurrent_param { num_output: 4 } }", schema.NetParameter())
    theirs = Net(
        param, schema.TRAIN, backend=NumPyBackend(dtype=np.float64), context=Context(seed=5)
    )
    w_i, w_h, bias = weights_of(ours)
    for blob, value in zip(theirs.params["l"], (w_i, bias, w_h), strict=True):
        blob.data[...] = value
    rng = np.random.default_rng(4)
    x, cont = rng.normal(size=(5, 2, 3)), rng.integers(0, 2, (5, 2))
    for made, name in ((ours, "clip"), (theirs, "cont")):
        made.blobs["x"].data[...], made.blobs[name].data[...] = x, cont
        made.run_forward()
    np.testing.assert_array_equal(ours.blobs["h"].data, theirs.blobs["h"].data)

"""Hidden states of RNN and LSTM: carried from pass to pass, or exposed as blobs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pycaffe_fire import Net, schema
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.layers import Context
from tests.layers.case import Array

KINDS = pytest.mark.parametrize(("kind", "states"), [("LSTM", 2), ("RNN", 1)])


def net(kind: str, steps: int, streams: int = 2, exposed: int = 0) -> Net:
    """x, cont and (exposed) initial states into one layer of width 3, with fixed weights."""
    shapes = [(steps, streams, 2), (steps, streams), *[(1, streams, 3)] * exposed]
    text = "force_backward: true "
    for i, shape in enumerate(shapes):
        dims = " ".join(f"dim: {d}" for d in shape)
        text += (
            f'layer {{ name: "in{i}" type: "Input" top: "in{i}" '
            f"input_param {{ shape {{ {dims} }} }} }}\n"
        )
    ends = " ".join(f'bottom: "in{i}"' for i in range(len(shapes)))
    ends += "".join(f' top: "out{i}"' for i in range(1 + exposed))
    text += f'layer {{ name: "layer" type: "{kind}" {ends} recurrent_param {{ num_output: 3 '
    text += "expose_hidden: true }}" if exposed else "}}"
    made = Net(
        schema.parse_text(text, schema.NetParameter()),
        schema.TRAIN,
        backend=NumPyBackend(dtype=np.float64),
        context=Context(),
    )
    rng = np.random.default_rng(3)
    for blob in made.params["layer"]:
        blob.data[...] = rng.normal(size=blob.shape)
    return made


def run(made: Net, x: Array, cont: Array, *states: Array) -> list[Array]:
    for i, value in enumerate((x, cont, *states)):
        made.blobs[f"in{i}"].data[...] = value
    made.run_forward()
    return [np.array(blob.data) for blob in made.tops[-1]]


def sequence(steps: int, streams: int = 2) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    cont = np.ones((steps, streams))
    cont[0] = 0
    return rng.normal(size=(steps, streams, 2)), cont


@KINDS
def test_the_next_pass_goes_on_where_the_last_one_ended(kind: str, states: int) -> None:
    x, cont = sequence(6)
    whole = run(net(kind, 6), x, cont)[0]
    halves = net(kind, 3)
    first, second = run(halves, x[:3], cont[:3])[0], run(halves, x[3:], cont[3:])[0]
    np.testing.assert_allclose(np.concatenate([first, second]), whole, atol=1e-12)
    begun_anew = run(halves, x[:3], cont[:3])[0]
    np.testing.assert_array_equal(begun_anew, first)


@KINDS
def test_a_sequence_may_begin_anywhere(kind: str, states: int) -> None:
    x, cont = sequence(6)
    cont[4, 1] = 0
    out = run(net(kind, 6), x, cont)[0]
    alone = run(net(kind, 2, 1), x[4:, 1:], np.array([[0.0], [1.0]]))[0]
    np.testing.assert_allclose(out[4:, 1:], alone, atol=1e-12)


@KINDS
def test_exposed_states_do_the_same_by_hand(kind: str, states: int) -> None:
    x, cont = sequence(6)
    whole = run(net(kind, 6), x, cont)[0]
    halves = net(kind, 3, exposed=states)
    first, *middle = run(halves, x[:3], cont[:3], *[np.full((1, 2, 3), 9.0)] * states)
    if kind == "LSTM":  # its output is its state h, the first of the two
        np.testing.assert_array_equal(middle[0][0], first[-1])
    second, *_ = run(halves, x[3:], cont[3:], *middle)
    np.testing.assert_allclose(np.concatenate([first, second]), whole, atol=1e-12)
    repeated, *_ = run(halves, x[3:], cont[3:], *middle)
    np.testing.assert_array_equal(repeated, second)


@KINDS
def test_gradients_stop_at_exposed_states(kind: str, states: int) -> None:
    """Caffe shares the states' values with the outside, not their gradients."""
    x, cont = sequence(3)
    made = net(kind, 3, exposed=states)
    run(made, x, np.ones_like(cont), *[np.full((1, 2, 3), 0.3)] * states)
    blobs = [made.blobs[f"in{i + 2}"] for i in range(states)]
    diffs: list[Any] = []
    for from_states in (0.0, 5.0):
        made.clear_param_diffs()
        made.blobs["out0"].diff[...] = 1
        for i in range(states):
            made.blobs[f"out{i + 1}"].diff[...] = from_states
            blobs[i].diff[...] = 7
        made.run_backward()
        diffs.append([np.array(b.diff) for b in (made.blobs["in0"], *made.params["layer"])])
        assert not any(blob.diff.any() for blob in blobs)
    for quiet, loud in zip(*diffs, strict=True):
        assert np.abs(quiet).sum() > 0
        np.testing.assert_array_equal(quiet, loud)


@KINDS
def test_another_number_of_streams_begins_anew(kind: str, states: int) -> None:
    x, cont = sequence(3, 4)
    made = net(kind, 3, 2)
    run(made, x[:, :2], cont[:, :2])
    made.blobs["in0"].reshape(3, 4, 2)
    made.blobs["in1"].reshape(3, 4)
    made.reshape()
    got = run(made, x, np.ones_like(cont))[0]
    np.testing.assert_array_equal(got, run(net(kind, 3, 4), x, np.ones_like(cont))[0])


@KINDS
def test_every_leaf_has_its_own_state(kind: str, states: int) -> None:
    x, cont = sequence(3)
    ones = np.ones_like(cont)
    made, alone = net(kind, 3), net(kind, 3)
    run(alone, x, ones)
    want = run(alone, 2 * x, ones)[0]
    run(made, x, ones)
    made.context.leaf = 1
    run(made, -x, ones)
    made.context.leaf = 0
    np.testing.assert_array_equal(run(made, 2 * x, ones)[0], want)


@KINDS
def test_large_inputs_saturate(kind: str, states: int) -> None:
    x, cont = sequence(4)
    made = net(kind, 4)
    with np.errstate(all="raise", under="ignore"):
        out = run(made, 1e8 * x, cont)[0]
    made.blobs["out0"].diff[...] = 1
    made.run_backward()
    assert np.isfinite(out).all()
    assert np.isfinite(made.blobs["in0"].diff).all()

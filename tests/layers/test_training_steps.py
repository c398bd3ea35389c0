"""Every layer type inside a net that a solver trains, saves and loads again; wrong counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pycaffe_fire import Net, schema
from pycaffe_fire.errors import LayerError
from pycaffe_fire.layers import LAYERS
from pycaffe_fire.net import net as core
from pycaffe_fire.solver import Solver, SolverOptions
from tests.layers.case import Array, Case, Trial
from tests.layers.test_contract import ROWS, fast, rows

# One row of every type; all of those with weights are trained besides.
FIRST = list({case.type: case for case in reversed(ROWS)}.values())

# Always something to learn, also beside layers that pass no gradient on.
BESIDE = """
layer { name: "one" type: "Input" top: "one" input_param { shape { dim: 1 dim: 2 } } }
layer { name: "learner" type: "InnerProduct" bottom: "one" top: "learner"
  inner_product_param { num_output: 1 weight_filler { value: 1 } } }
layer { name: "beside" type: "Reduction" bottom: "learner" top: "beside" loss_weight: 1 }
"""


def surrounded(case: Case, trial: Trial) -> str:
    """The row's net with a learned offset before every bottom that gets a gradient, and a loss.

    The loss is a sum of the tops with random weights, so that no symmetry hides a gradient.
    """
    text = trial._text().replace("force_backward: true", "")
    head, _, layer = text.rpartition("\n")
    if case.phase == "TEST":
        layer = layer.replace('name: "layer"', 'name: "layer" phase: TEST', 1)
    for i in case.wants_gradient:
        head += (
            f'\nlayer {{ name: "offset{i}" type: "Bias" bottom: "in{i}" top: "offset{i}" '
            "bias_param { axis: 0 num_axes: -1 } }"
        )
        layer = layer.replace(f'bottom: "in{i}"', f'bottom: "offset{i}"')
    lines = [head, layer, BESIDE]
    given = case.top_gradients
    for i, weight in enumerate(trial.layer.loss_weights[: case.tops]):
        if weight:
            continue
        if case.has_backward and (given is None or i in given):
            shape = trial.net.blobs[f"out{i}"].shape
            weights = (
                f'type: "Scale" param {{ lr_mult: 0 }} scale_param {{ axis: 0 '
                f"num_axes: {-1 if shape else 0} "
                'filler { type: "uniform" min: 0.5 max: 1.5 } }'
            )
            if case.type == "Filter":  # what is left of a batch shows when it runs
                weights = 'type: "Power" power_param { power: 2 }'
            ends = f'bottom: "out{i}" top: "sum{i}" loss_weight: 1'
            lines.append(f'layer {{ name: "sum{i}" {ends} {weights} }}')
        else:
            lines.append(f'layer {{ name: "end{i}" type: "Silence" bottom: "out{i}" }}')
    return "\n".join(lines)


def expected_to_move(case: Case, trial: Trial) -> list[str]:
    """Parameters ("name index") that learn and whose gradient is not zero by nature."""
    names = [f"offset{i} 0" for i in case.wants_gradient] + [f"layer {i}" for i in case.learns]
    gradients = trial.both(case.values())[-len(names) :] if names else []
    fixed = {f"layer {i}" for i, p in enumerate(trial.layer.param.param) if p.lr_mult == 0}
    found = zip(names, gradients, strict=True)
    return [n for n, g in found if np.abs(g).max(initial=0) > 1e-5 and n not in fixed]


def put(net: core.Net, values: list[Array]) -> None:
    for i, value in enumerate(values):
        net.blobs[f"in{i}"].data[...] = value
    net.blobs["one"].data[...] = 1


@rows(lambda case: case in FIRST or case.weights)
def test_trains_a_step_and_survives_save_and_load(case: Case, tmp_path: Path) -> None:
    trial, values = Trial(case, fast()), case.values()
    param = schema.SolverParameter(base_lr=0.01, lr_policy="fixed", momentum=0.9)
    text = surrounded(case, trial)
    param.net_param.CopyFrom(schema.parse_text(text, schema.NetParameter()))
    solver = Solver(param, SolverOptions(fast(), 0, make_net=Net))
    net = solver.net
    put(net, values)
    for blob, value in zip(net.params.get("layer", []), trial.weights, strict=True):
        blob.data[...] = value
    before = {name: [b.data.copy() for b in blobs] for name, blobs in net.params.items()}
    solver.step(1)
    moved = {
        f"{name} {i}"
        for name, blobs in net.params.items()
        for i, blob in enumerate(blobs)
        if (blob.data != before[name][i]).any()
    }
    assert {"learner 0", *expected_to_move(case, trial)} <= moved
    assert all(np.isfinite(b.data).all() for blobs in net.params.values() for b in blobs)
    saved = str(tmp_path / "trained.caffemodel")
    net.save(saved)
    other = Net(schema.parse_text(text, schema.NetParameter()), schema.TRAIN, backend=fast())
    other.copy_from(saved)
    for name, blobs in net.params.items():
        for mine, loaded in zip(blobs, other.params[name], strict=True):
            np.testing.assert_array_equal(mine.data, loaded.data)


@rows(lambda case: case in FIRST and case.shapes and LAYERS[case.type].bottoms[1] is not None)
def test_a_bottom_too_many_is_refused(case: Case) -> None:
    most = LAYERS[case.type].bottoms[1]
    assert most is not None
    shapes = (case.shapes * (most + 1))[: most + 1]
    with pytest.raises(LayerError, match='layer "layer" .*expects .* bottom.*, got') as caught:
        Trial(replace(case, shapes=shapes, fill=("normal",)), fast())
    assert f"({case.type})" in str(caught.value)


@rows(lambda case: case in FIRST and case.shapes and LAYERS[case.type].bottoms[0])
def test_no_bottom_at_all_is_refused(case: Case) -> None:
    with pytest.raises(LayerError, match='layer "layer" .*expects .* bottom.*, got 0'):
        Trial(replace(case, shapes=(), gradients=()), fast())


@rows(lambda case: case in FIRST and LAYERS[case.type].tops[1] is not None)
def test_a_top_too_many_is_refused(case: Case) -> None:
    most = LAYERS[case.type].tops[1]
    assert most is not None
    with pytest.raises(LayerError, match='layer "layer" .*expects .* top.*, got'):
        Trial(replace(case, tops=most + 1), fast())

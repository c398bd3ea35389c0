"""Fillers: their distributions, their fixed values, and that seeds decide."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.errors import LayerError
from pycaffe_fire.layers.fillers import FILLERS

SHAPE = (200, 50, 3, 3)
FAN_IN, FAN_OUT = 50 * 9, 200 * 9


def filled(text: str, shape: tuple[int, ...] = SHAPE, key: int = 5) -> np.ndarray[Any, Any]:
    param = schema.parse_text(text, schema.FillerParameter())
    return FILLERS[param.type](shape, param, key, 2).reshape(shape)


def test_constant() -> None:
    assert (filled("value: 2.5") == 2.5).all()
    assert not filled('type: "constant"').any()


def test_uniform() -> None:
    values = filled('type: "uniform" min: -1 max: 3')
    assert values.min() >= -1 and values.max() < 3
    assert values.mean() == pytest.approx(1, abs=0.02)
    assert values.std() == pytest.approx(4 / sqrt(12), rel=0.01)


def test_gaussian() -> None:
    values = filled('type: "gaussian" mean: 2 std: 0.5')
    assert values.mean() == pytest.approx(2, abs=0.01)
    assert values.std() == pytest.approx(0.5, rel=0.01)
    assert np.abs((values - 2) / 0.5).max() > 3.5


def test_sparse_gaussian_keeps_that_many_of_a_column_on_average() -> None:
    """Caffe keeps each weight with probability sparse / outputs."""
    values = filled('type: "gaussian" std: 1 sparse: 20', (200, 500))
    assert (values != 0).mean() == pytest.approx(20 / 200, rel=0.05)
    assert values[values != 0].std() == pytest.approx(1, rel=0.03)
    assert not filled('type: "gaussian" std: 1 sparse: 0', (20, 5)).any()


@pytest.mark.parametrize(
    ("norm", "fan"),
    [("FAN_IN", FAN_IN), ("FAN_OUT", FAN_OUT), ("AVERAGE", (FAN_IN + FAN_OUT) / 2), ("", FAN_IN)],
)
def test_variance_norm(norm: str, fan: float) -> None:
    given = f"variance_norm: {norm}" if norm else ""
    xavier = filled(f'type: "xavier" {given}')
    assert np.abs(xavier).max() <= sqrt(3 / fan) and xavier.std() == pytest.approx(
        sqrt(1 / fan), rel=0.01
    )
    assert filled(f'type: "msra" {given}').std() == pytest.approx(sqrt(2 / fan), rel=0.01)


def test_scale_of_msra() -> None:
    plain = filled('type: "msra"')
    np.testing.assert_allclose(filled('type: "msra" scale: 0.25'), plain / 4, rtol=1e-6)


def test_scale_of_another_filler_is_refused() -> None:
    text = 'layer { name: "x" type: "Parameter" top: "x" parameter_param { shape { dim: 2 } } }'
    text += (
        'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param '
        '{ num_output: 2 axis: 0 weight_filler { type: "xavier" scale: 2 } } }'
    )
    with pytest.raises(LayerError, match='"ip".*scale is for the "msra" filler; the "xavier"'):
        caffe.Net(schema.parse_text(text, schema.NetParameter()), caffe.TEST)


def test_objects_come_in_rows_of_8() -> None:
    param = schema.parse_text('type: "objects" value: 2 max: 3', schema.FillerParameter())
    with pytest.raises(ValueError, match="needs rows of 8"):
        FILLERS[param.type]((4, 7), param, 1, 1)


def test_positive_unitball() -> None:
    values = filled('type: "positive_unitball"')
    assert (values >= 0).all()
    np.testing.assert_allclose(values.reshape(200, -1).sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("size", "line"),
    [
        (4, [0.25, 0.75, 0.75, 0.25]),
        (5, [1 / 3, 2 / 3, 1, 2 / 3, 1 / 3]),
        (6, [1 / 6, 1 / 2, 5 / 6, 5 / 6, 1 / 2, 1 / 6]),
        (3, [0.5, 1, 0.5]),
        (2, [0.5, 0.5]),
        (1, [1]),
    ],
)
def test_bilinear(size: int, line: list[float]) -> None:
    values = filled('type: "bilinear"', (2, 3, size, size))
    for plane in values.reshape(6, size, size):
        np.testing.assert_allclose(plane, np.outer(line, line), rtol=1e-6)


def test_bilinear_needs_square_filters() -> None:
    with pytest.raises(ValueError, match=r"square.*\[1, 1, 3, 4\]"):
        filled('type: "bilinear"', (1, 1, 3, 4))


def net(extra: str, seed: int) -> caffe.Net:
    caffe.set_random_seed(seed)
    text = 'layer { name: "d" type: "Input" top: "d" input_param { shape { dim: 1 dim: 9 } } }'
    for name in "ab":
        text += (
            f'layer {{ name: "{name}" type: "InnerProduct" bottom: "d" top: "{name}" '
            f"inner_product_param {{ num_output: 9 {extra} }} }}"
        )
    return caffe.Net(schema.parse_text(text, schema.NetParameter()), caffe.TEST)


def test_seed_and_name_decide() -> None:
    gauss = 'weight_filler { type: "gaussian" } bias_filler { type: "gaussian" }'
    one, same, other = net(gauss, 1), net(gauss, 1), net(gauss, 2)
    for name in "ab":
        for i in range(2):
            np.testing.assert_array_equal(one.params[name][i].data, same.params[name][i].data)
            assert (one.params[name][i].data != other.params[name][i].data).all()
    assert (one.params["a"][0].data != one.params["b"][0].data).all()
    assert (one.params["a"][0].data[0] != one.params["a"][1].data).all()


def test_sparse_only_with_gaussian() -> None:
    with pytest.raises(caffe.FireError, match='"a".*sparse is not supported by the "xavier"'):
        net('weight_filler { type: "xavier" sparse: 3 }', 1)

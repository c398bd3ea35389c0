"""Coordinate maps, checked by hand and against where a net really puts a pixel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pycaffe_fire import Net, schema
from pycaffe_fire.pycaffe.coord_map import (
    AxisMismatchException,
    UndefinedMapException,
    compose,
    coord_map,
    coord_map_from_to,
    crop,
    crop_params,
    inverse,
)
from pycaffe_fire.pycaffe.net_spec import NetSpec, Top
from pycaffe_fire.pycaffe.net_spec import layers as L


def fcn(**conv: Any) -> NetSpec:
    n = NetSpec()
    n.data = L.Input(shape=dict(dim=[1, 1, 40, 40]))
    n.conv = L.Convolution(n.data, **{"num_output": 2, "kernel_size": 3, **conv})
    n.pool = L.Pooling(n.conv, kernel_size=2, stride=2)
    n.relu = L.ReLU(n.pool, in_place=True)
    n.up = L.Deconvolution(
        n.relu, convolution_param=dict(num_output=2, kernel_size=4, stride=2, pad=1)
    )
    return n


def rounded(found: Any) -> tuple[Any, list[float], list[float]]:
    axis, a, b = found
    return axis, np.atleast_1d(a).tolist(), np.atleast_1d(b).tolist()


def test_maps_of_single_layers() -> None:
    n = fcn(kernel_size=5, stride=2, pad=2)
    assert rounded(coord_map(n.conv.fn)) == (1, [0.5], [0])
    assert rounded(coord_map(n.pool.fn)) == (1, [0.5], [-0.25])
    assert coord_map(n.relu.fn) == (None, 1, 0)
    assert rounded(coord_map(n.up.fn)) == (1, [2], [0.5])
    dilated = L.Convolution(n.data, num_output=1, kernel_size=[3, 5], dilation=2, pad=[0, 4])
    assert rounded(coord_map(dilated.fn)) == (1, [1], [-2, 0])
    cropped = L.Crop(n.up, n.data, axis=2, offset=3)
    assert crop_params(cropped.fn)[0] == 2
    assert rounded(coord_map(cropped.fn)) == (1, [1], [-3])


def test_composing_and_inverting() -> None:
    there = (1, np.array([2.0]), np.array([3.0]))
    assert rounded(compose(there, inverse(there))) == (1, [1], [0])
    assert compose((None, 1, 0), (2, 4, 5)) == (2, 4, 5)
    with pytest.raises(AxisMismatchException, match="axes, 2 and 3"):
        compose((1, 1, 0), (2, 1, 0))


def test_crop_goes_where_the_net_puts_a_pixel() -> None:
    """A bright pixel of the data must come out at the same place behind the crop."""
    n = NetSpec()
    n.data = L.Input(shape=dict(dim=[1, 1, 32, 32]))
    n.conv = L.Convolution(n.data, num_output=1, kernel_size=3, pad=10)
    n.pool = L.Pooling(n.conv, kernel_size=2, stride=2)
    n.up = L.Deconvolution(n.pool, num_output=1, kernel_size=4, stride=2, pad=1)
    n.score = crop(n.up, n.data)
    net = Net(n.to_proto(), schema.TEST)
    for name in ("conv", "up"):
        net.params[name][0].data[...] = 1
        net.params[name][1].data[...] = 0
    for at in (9, 16, 21):
        net.blobs["data"].data[...] = 0
        net.blobs["data"].data[0, 0, at, at] = 1
        out = net.forward()["score"][0, 0]
        assert out.shape == (32, 32)
        middle = (out.sum(0) * np.arange(32)).sum() / out.sum()
        assert abs(middle - at) <= 0.75  # pooling takes pixels in pairs


def test_crop_layers() -> None:
    n = NetSpec()
    n.data = L.Input(shape=dict(dim=[1, 1, 40, 40]))
    n.conv = L.Convolution(n.data, num_output=2, kernel_size=3, pad=20)
    n.up = L.Deconvolution(n.conv, num_output=2, kernel_size=3)
    n.crop = crop(n.up, n.data)
    layer = n.to_proto().layer[-1]
    assert (layer.type, list(layer.bottom)) == ("Crop", ["up", "data"])
    assert layer.crop_param.axis == 2 and list(layer.crop_param.offset) == [20]
    same = crop(L.ReLU(n.conv), n.conv).fn
    assert same.params["crop_param"] == {"axis": 2, "offset": [0]}


def test_through_crops_and_branches() -> None:
    n = fcn(pad=20)
    up: Top = n.up
    direct = coord_map_from_to(up, n.data)
    n.cropped = L.Crop(up, n.data, crop_param=dict(axis=2, offset=4))
    axis, a, b = coord_map_from_to(n.cropped, n.data)
    assert (axis, np.ravel(b).tolist()) == (1, (np.ravel(direct[2]) + 4).tolist())
    n.sum = L.Eltwise(n.relu, L.Pooling(n.conv, kernel_size=2, stride=2))
    assert rounded(coord_map_from_to(n.sum, n.pool))[1:] == ([1], [0])


def test_what_cannot_be_aligned() -> None:
    n = fcn()
    with pytest.raises(AssertionError, match="scale mismatch"):
        crop(n.pool, n.data)
    with pytest.raises(AssertionError, match="negative offset"):
        crop(n.up, n.data)
    with pytest.raises(AssertionError, match="noninteger"):
        odd = L.Convolution(n.data, num_output=2, kernel_size=4, pad=20)
        crop(odd, n.data)
    other = L.Input(shape=dict(dim=[1, 1, 8, 8]))
    with pytest.raises(RuntimeError, match="no map between"):
        coord_map_from_to(n.up, other)
    with pytest.raises(UndefinedMapException, match="InnerProduct"):
        coord_map(L.InnerProduct(n.data, num_output=2).fn)
    with pytest.raises(UndefinedMapException, match="instead of kernel_h"):
        coord_map(L.Convolution(n.data, num_output=1, kernel_h=3, kernel_w=3).fn)

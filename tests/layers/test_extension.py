"""Layers from other packages, as the README of the layers tells to write them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import Net, schema
from pycaffe_fire.errors import LayerError, NetError
from pycaffe_fire.layers import LAYERS

README = (Path(__file__).parents[2] / "pycaffe_fire" / "layers" / "README.md").read_text()
EXAMPLE, POINTS = (
    re.findall(rf"```{kind}\n(.*?)```", README, re.S)[0] for kind in ("python", "toml")
)


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What these tests register is forgotten after each."""
    monkeypatch.setattr(LAYERS, "_items", dict(LAYERS._items))
    monkeypatch.delitem(sys.modules, "my_package", raising=False)


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str, points: str) -> None:
    """What pip would leave of a package that declares `points`."""
    (folder / "my_package.py").write_text(code)
    info = folder / "my_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my_package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[pycaffe_fire.layers]\n" + points)
    monkeypatch.syspath_prepend(str(folder))


def square_net(kind: str = "Square") -> Net:
    text = f"""
        force_backward: true
        layer {{ name: "x" type: "Input" top: "x" input_param {{ shape {{ dim: 2 dim: 3 }} }} }}
        layer {{ name: "square" type: "{kind}" bottom: "x" top: "y" }}"""
    return Net(schema.parse_text(text, schema.NetParameter()), caffe.TRAIN)


def check_square(net: Net) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(net.forward(x=x)["y"], x * x)
    np.testing.assert_array_equal(net.backward(y=np.ones_like(x))["x"], 2 * x)


def test_by_decorator() -> None:
    with pytest.raises(LayerError, match='unknown layer type "Square"'):
        square_net()
    exec(EXAMPLE, {"__name__": "somewhere"})
    check_square(square_net())


def test_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = re.findall(r'^(\w+) = "(.*)"$', POINTS, re.M)
    code = EXAMPLE.replace('@register_layer("Square")\n', "")
    install(tmp_path, monkeypatch, code, "".join(f"{n} = {v}\n" for n, v in declared))
    assert "Square" in caffe.layer_type_list()
    assert "my_package" not in sys.modules, "listing imports nothing"
    square_net("ReLU")
    assert "my_package" not in sys.modules, "nor does a net without the type"
    check_square(square_net())


def test_an_entry_point_does_not_replace_our_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "raise RuntimeError", "ReLU = my_package:ReLU\n")
    square_net("ReLU")
    assert "my_package" not in sys.modules


@pytest.mark.parametrize(
    ("code", "match"),
    [
        ("raise RuntimeError('no')", "my_package:Square of package my_package.*RuntimeError: no"),
        ("", "cannot be loaded: AttributeError"),
        ("Square = 3", "inherits from pycaffe_fire.layers.Layer, got 3"),
    ],
)
def test_a_broken_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, match: str
) -> None:
    install(tmp_path, monkeypatch, code, "Square = my_package:Square\n")
    with pytest.raises(LayerError, match=match) as caught:
        square_net()
    assert 'layer "square" (Square)' in str(caught.value)


def test_only_layers_register() -> None:
    with pytest.raises(NetError, match="inherits from pycaffe_fire.layers.Layer"):
        LAYERS.register("Odd")(caffe.Layer)  # type: ignore[arg-type]
    assert "Odd" not in LAYERS


def test_a_typing_error_is_met_with_names_of_other_packages_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, EXAMPLE, "Square = my_package:Square\n")
    with pytest.raises(LayerError, match='did you mean "Square"'):
        square_net("Sqare")

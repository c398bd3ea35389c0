"""Python layers: pycaffe's contract, and no import without consent."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import Net, schema
from pycaffe_fire.errors import LayerError
from pycaffe_fire.layers import Context


class Scaled(caffe.Layer):
    """top = param_str * weight * bottom, with one learned number."""

    def setup(self, bottom: Any, top: Any) -> None:
        self.factor = float(self.param_str)
        self.calls: list[str] = []
        self.blobs.add_blob(1)
        self.blobs[0].data[...] = 2

    def reshape(self, bottom: Any, top: Any) -> None:
        self.calls.append("reshape")
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom: Any, top: Any) -> None:
        self.calls.append("forward")
        top[0].data[...] = self.factor * self.blobs[0].data[0] * bottom[0].data

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        self.blobs[0].diff[0] += self.factor * (top[0].diff * bottom[0].data).sum()
        if propagate_down[0]:
            bottom[0].diff[...] = self.factor * self.blobs[0].data[0] * top[0].diff


class Distance(caffe.Layer):
    """A loss: half the squared distance per sample (pycaffe's example of a Python loss)."""

    def setup(self, bottom: Any, top: Any) -> None:
        if len(bottom) != 2:
            raise ValueError("need two inputs to compute a distance")

    def reshape(self, bottom: Any, top: Any) -> None:
        self.diff = np.zeros_like(bottom[0].data)
        top[0].reshape(1)

    def forward(self, bottom: Any, top: Any) -> None:
        self.diff[...] = bottom[0].data - bottom[1].data
        top[0].data[...] = np.sum(self.diff**2) / bottom[0].num / 2.0

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        for i, sign in enumerate((1, -1)):
            if propagate_down[i]:
                bottom[i].diff[...] = sign * self.diff / bottom[i].num


class Source(caffe.Layer):
    """Feeds batches of 1, 2, 3, ... samples; the work is done in reshape, as some people do."""

    def __init__(self, param: Any) -> None:
        super().__init__(param)
        self.named = param.name
        self.size = 0

    def reshape(self, bottom: Any, top: Any) -> None:
        self.size += 1
        top[0].reshape(self.size, 2)

    def forward(self, bottom: Any, top: Any) -> None:
        top[0].data[...] = self.size + 10 * self.phase

    def set_size(self, size: int) -> None:
        self.size = size


class Lazy(caffe.Layer):
    """Its backward writes nothing."""

    def reshape(self, bottom: Any, top: Any) -> None:
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom: Any, top: Any) -> None:
        top[0].data[...] = bottom[0].data

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        assert list(propagate_down) == [True]


class Broken(Lazy):
    def forward(self, bottom: Any, top: Any) -> None:
        raise KeyError("of the user")


class Shapeless(caffe.Layer):
    def forward(self, bottom: Any, top: Any) -> None:
        pass


def layer(kind: str, extra: str = "", ends: str = 'bottom: "x" top: "y"') -> str:
    module = extra if "module" in extra else f'module: "{__name__}" {extra}'
    return (
        f'layer {{ name: "layer" type: "Python" {ends} '
        f'python_param {{ {module} layer: "{kind}" }} }}'
    )


INPUT = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 3 dim: 2 } } }\n'


def net(text: str, phase: int = caffe.TRAIN, **options: Any) -> Net:
    param = schema.parse_text("force_backward: true\n" + text, schema.NetParameter())
    return Net(param, phase, **options)


@pytest.fixture
def _no_consent() -> Iterator[None]:
    yield
    caffe.allow_python_layers(False)


# The contract.


def test_forward_backward_and_weights(tmp_path: Path) -> None:
    made = net(INPUT + layer("Scaled", 'param_str: "1.5"'))
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(made.forward(x=x)["y"], 3 * x)
    made.clear_param_diffs()
    np.testing.assert_array_equal(made.backward(y=np.ones_like(x))["x"], np.full((3, 2), 3))
    weight = made.params["layer"][0]
    assert weight.shape == (1,)
    assert weight.diff[0] == pytest.approx(1.5 * x.sum())
    weight.data[...] = 7
    made.save(str(tmp_path / "w.caffemodel"))
    again = net(INPUT + layer("Scaled", 'param_str: "1"'))
    again.copy_from(str(tmp_path / "w.caffemodel"))
    np.testing.assert_array_equal(again.forward(x=x)["y"], 7 * x)


def test_reshape_comes_before_every_forward() -> None:
    made = net(INPUT + layer("Scaled", 'param_str: "1"'))
    made.forward()
    made.forward()
    layer_made: Any = made.layers[1]
    assert layer_made.calls == ["reshape", "reshape", "forward", "reshape", "forward"]
    made.blobs["x"].reshape(5, 2)
    made.forward()
    assert made.blobs["y"].shape == (5, 2)


def test_setup_does_not_reset_weights_that_a_net_lends() -> None:
    text = INPUT + layer("Scaled", 'param_str: "1"')
    made = net(text)
    made.params["layer"][0].data[...] = 5
    test = net(text, caffe.TEST, lender=made)
    assert made.params["layer"][0].data[0] == 5
    assert test.params["layer"][0].data[0] == 5
    made.params["layer"][0].data[...] = 6
    assert test.params["layer"][0].data[0] == 6


def test_named_weights_are_shared() -> None:
    text = INPUT + layer("Scaled", 'param_str: "1"').replace(
        "python_param", 'param { name: "w" } python_param'
    )
    second = text.splitlines()[1].replace('"x"', '"y"').replace('top: "y"', 'top: "z"')
    made = net(text + second.replace('name: "layer"', 'name: "other"'))
    made.params["layer"][0].data[...] = 3
    x = np.ones((3, 2), np.float32)
    np.testing.assert_array_equal(made.forward(x=x)["z"], 9 * x)
    made.clear_param_diffs()
    made.backward(z=x)
    assert made.params["layer"][0].diff[0] == pytest.approx(2 * 3 * 6)


def test_a_loss_trains(tmp_path: Path) -> None:
    data = """layer { name: "d" type: "DummyData" top: "x" top: "t" dummy_data_param {
        shape { dim: 4 dim: 2 } data_filler { value: 1 } data_filler { value: 5 } } }"""
    text = (
        data
        + layer("Scaled", 'param_str: "1"')
        + layer("Distance", ends='bottom: "y" bottom: "t" top: "loss" loss_weight: 0.5').replace(
            '"layer"', '"loss"', 1
        )
    )
    (tmp_path / "net.prototxt").write_text(text)
    solver = tmp_path / "solver.prototxt"
    solver.write_text(
        f'net: "{tmp_path}/net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 50 '
        f"snapshot_after_train: false display: 0"
    )
    made = caffe.get_solver(str(solver))
    made.step(1)
    assert made.net.blobs["loss"].data.reshape(-1)[0] == pytest.approx(9)
    made.step(60)
    assert made.net.params["layer"][0].data[0] == pytest.approx(5, abs=1e-3)


def test_a_source_of_data_and_its_methods() -> None:
    made = net(layer("Source", ends='top: "y"'), caffe.TEST)
    assert made.blobs["y"].shape == (1, 2)
    assert made.forward()["y"].shape == (2, 2)
    source: Any = made.layers[0]
    source.set_size(6)
    np.testing.assert_array_equal(made.forward()["y"], np.full((7, 2), 17))
    assert source.named == "layer"
    with pytest.raises(AttributeError, match="no_such"):
        source.no_such  # noqa: B018


def test_a_source_of_data_feeds_leaves_only_in_training() -> None:
    with pytest.raises(LayerError, match="for all leaves of a batch together, which a solver does"):
        net(layer("Source", ends='top: "y"'), context=Context(leaves=4))


def test_gradients_that_backward_leaves_out_are_zero() -> None:
    made = net(INPUT + layer("Lazy"))
    made.forward()
    made.blobs["x"].diff[...] = 3
    assert not made.backward()["x"].any()


# Refusals.


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (layer("Missing"), "test_python_layer.Missing must be a class .* but there is none"),
        (layer("Path"), r"must be a class that inherits from pycaffe_fire.Layer, but it is <class"),
        (layer("system", 'module: "os"'), "must be a class that inherits from pycaffe_fire.Layer"),
        (layer("Shapeless"), "Shapeless defines no reshape"),
        (layer("", 'module: ""'), "needs module and layer"),
    ],
)
def test_wrong_classes_are_refused(text: str, match: str) -> None:
    with pytest.raises(LayerError, match=match) as caught:
        net(INPUT + text)
    assert 'layer "layer" (Python)' in str(caught.value)


def test_a_class_without_backward_is_refused_when_it_is_needed() -> None:
    made = net(layer("Source", ends='top: "y"'))
    made.forward()
    with pytest.raises(LayerError, match="Source defines no backward"):
        made.backward()


def test_exceptions_of_the_user_go_through() -> None:
    made = net(INPUT + layer("Broken"))
    with pytest.raises(KeyError, match="of the user") as caught:
        made.forward()
    if sys.version_info >= (3, 11):
        assert caught.value.__notes__ == [
            f'in forward of layer "layer" (Python: {__name__}.Broken)'
        ]
    with pytest.raises(ValueError, match="need two inputs"):
        net(INPUT + layer("Distance"))


CODE = """
import pycaffe_fire as caffe
class Same(caffe.Layer):
    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)
    def forward(self, bottom, top):
        top[0].data[...] = bottom[0].data
"""


def test_no_import_without_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _no_consent: None
) -> None:
    (tmp_path / "downloaded_layers.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = INPUT + layer("Same", 'module: "downloaded_layers"')
    with pytest.raises(LayerError, match="--allow-python-layers") as caught:
        net(text)
    assert "allow_python_layers()" in str(caught.value)
    assert "downloaded_layers" not in sys.modules
    caffe.allow_python_layers()
    try:
        assert net(text).forward(x=np.ones((3, 2), np.float32))["y"].all()
    finally:
        sys.modules.pop("downloaded_layers", None)


def test_the_callers_own_import_is_consent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_layers.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    __import__("my_layers")
    try:
        net(INPUT + layer("Same", 'module: "my_layers"')).forward()
    finally:
        sys.modules.pop("my_layers")


@pytest.mark.parametrize(
    ("code", "match"),
    [
        (None, "cannot import .broken_layers.*PYTHONPATH"),
        ("import no_such_module", "No module named 'no_such_module'"),
        ("def (", "SyntaxError"),
    ],
)
def test_modules_that_do_not_import(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    _no_consent: None,
    code: str | None,
    match: str,
) -> None:
    if code is not None:
        (tmp_path / "broken_layers.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    caffe.allow_python_layers()
    with pytest.raises(LayerError, match=match):
        net(INPUT + layer("Same", 'module: "broken_layers"'))

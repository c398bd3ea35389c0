"""ONNX to Caffe: ops in every dialect, round trips, all that cannot be named at once, bad files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.random_numbers import RNG

pytest.importorskip("onnx", reason="conversions from ONNX need the extra `convert`")
pytest.importorskip("onnxruntime", reason="conversions from ONNX need the extra `convert`")

import onnx
from onnx import TensorProto, helper, numpy_helper

from pycaffe_fire import schema
from pycaffe_fire.cli.fire_convert import main
from pycaffe_fire.convert.caffe_to_onnx import Conversion, convert_to_onnx
from pycaffe_fire.convert.model import build, read_model
from pycaffe_fire.convert.onnx_to_caffe import convert_to_caffe
from pycaffe_fire.convert.runtime import OnnxRuntime
from pycaffe_fire.convert.to_onnx.export import Options
from pycaffe_fire.errors import ConvertError
from tests.convert.nets import model_of
from tests.convert.test_to_onnx import NET, SSD
from tests.layers.case import Array


def integers(values: list[int]) -> Array:
    return np.array(values, np.int64)


def floats(values: list[float]) -> Array:
    return np.array(values, np.float32)


def array(*shape: int) -> Array:
    return np.float32(RNG.normal(0, 0.5, shape))


def node(kind: str, inputs: str, output: str = "", **attributes: Any) -> Any:
    outputs = output.split() or ["y"]
    return helper.make_node(kind, inputs.split(), outputs, name=f"n_{outputs[0]}", **attributes)


def onnx_file(
    path: Path,
    nodes: list[Any],
    arrays: dict[str, Any] | None = None,
    shape: tuple[Any, ...] = ("N", 4, 7, 9),
    opset: int = 17,
    output: str = "y",
) -> Path:
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info(output)],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (arrays or {}).items()],
    )  # fmt: skip
    graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    path.write_bytes(model.SerializeToString())
    return path


def to_caffe(path: Path, dialect: str = "bvlc", **more: Any) -> Conversion:
    folder = path.parent
    return convert_to_caffe(
        path, folder / "out.prototxt", folder / "out.caffemodel", dialect, **more
    )


def types(made: Conversion) -> list[str]:
    return [layer.type for layer in made.param.layer]


W = array(6, 4, 3, 3)
OPS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "conv": ([node("Conv", "x w b", pads=[1, 1, 1, 1])], {"w": W, "b": array(6)}),
    "uneven pads": ([node("Conv", "x w", pads=[0, 1, 2, 1], strides=[2, 2])], {"w": W}),
    "same upper": ([node("Conv", "x w", auto_pad="SAME_UPPER", strides=[2, 2])], {"w": W}),
    "depthwise": ([node("Conv", "x w", group=4)], {"w": array(4, 1, 3, 3)}),
    "dilated": ([node("Conv", "x w", dilations=[2, 2], pads=[2, 2, 2, 2])], {"w": W}),
    "deconvolution": (
        [node("ConvTranspose", "x w b", strides=[2, 2], pads=[1, 1, 1, 1], group=2)],
        {"w": array(4, 3, 4, 4), "b": array(6)},
    ),
    "pad and conv": (
        [node("Pad", "x p", "z"), node("Conv", "z w")],
        {"p": integers([0, 0, 0, 0, 0, 0, 1, 1]), "w": W},
    ),
    "pad alone": ([node("Pad", "x p")], {"p": integers([0, 0, 1, 2, 0, 0, 0, 3])}),
    "batch norm": (
        [node("BatchNormalization", "x s b m v")],
        {"s": array(4), "b": array(4), "m": array(4), "v": floats([1, 2, 3, 4])},
    ),
    "max pool floor": ([node("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2])], {}),
    "max pool pads": (
        [node("MaxPool", "x", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])], {},
    ),
    "max pool ceil": (
        [node("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)], {},
    ),
    "average pool": (
        [node("AveragePool", "x", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])], {},
    ),
    "average pool with pads": (
        [node("AveragePool", "x", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1],
              count_include_pad=1)], {},
    ),
    "global pool": ([node("GlobalAveragePool", "x")], {}),
    "relu6": ([node("Clip", "x a b")], {"a": np.float32(0), "b": np.float32(6)}),
    "clip": ([node("Clip", "x a b")], {"a": np.float32(-0.5), "b": np.float32(0.7)}),
    "hard swish": ([node("HardSwish", "x")], {}),
    "hard sigmoid": ([node("HardSigmoid", "x", alpha=0.25)], {}),
    "silu": ([node("Sigmoid", "x", "s"), node("Mul", "x s")], {}),
    "prelu": ([node("PRelu", "x s")], {"s": array(4, 1, 1)}),
    "leaky": ([node("LeakyRelu", "x", alpha=0.2)], {}),
    "add number": ([node("Add", "x c")], {"c": np.float32(3)}),
    "number minus": ([node("Sub", "c x")], {"c": np.float32(3)}),
    "divide by channels": ([node("Div", "x c")], {"c": floats([1, 2, 3, 4]).reshape(4, 1, 1)}),
    "add image": ([node("Add", "x c")], {"c": array(1, 4, 7, 9)}),
    "difference": ([node("Relu", "x", "r"), node("Sub", "x r")], {}),
    "squeeze and excite": (
        [node("GlobalAveragePool", "x", "g"), node("Sigmoid", "g", "s"), node("Mul", "x s")], {},
    ),
    "gemm": (
        [node("Flatten", "x", "f"), node("Gemm", "f w b", transB=1)],
        {"w": array(5, 252), "b": array(5)},
    ),
    "matmul": (
        [node("Reshape", "x s", "f"), node("MatMul", "f w", "m"), node("Add", "m b")],
        {"s": integers([0, -1]), "w": array(252, 5), "b": array(5)},
    ),
    "flatten by shapes": (  # as PyTorch writes x.view(x.size(0), -1)
        [node("Shape", "x", "d"), node("Gather", "d zero", "n"), node("Unsqueeze", "n ax", "n1"),
         node("Concat", "n1 rest", "t", axis=0), node("Reshape", "x t")],
        {"zero": np.int64(0), "ax": integers([0]), "rest": integers([-1])},
    ),
    "mean": ([node("ReduceMean", "x", axes=[2, 3], keepdims=0)], {}),
    "mean of channels": ([node("ReduceMean", "x", axes=[1], keepdims=0)], {}),
    "without the channels' mean": (
        [node("ReduceMean", "x", "m", axes=[1]), node("Sub", "x m")], {},
    ),
    "minus the whole": ([node("ReduceMean", "x", "m", axes=[1]), node("Sub", "m x")], {}),
    "share of the channels' sum": (
        [node("Exp", "x", "e"), node("ReduceSum", "e ax", "s"), node("Div", "e s")],
        {"ax": integers([1])},
    ),
    "share of the image's sum": (
        [node("Exp", "x", "e"), node("ReduceSum", "e ax", "s"), node("Div", "e s")],
        {"ax": integers([2, 3])},
    ),
    "split": (
        [node("Split", "x s", "a b", axis=1), node("Mul", "a b")], {"s": integers([2, 2])},
    ),
    "slice": (
        [node("Slice", "x a b c")],
        {"a": integers([1, 0]), "b": integers([-1, 5]), "c": integers([2, 3])},
    ),
    "concat": ([node("Relu", "x", "r"), node("Concat", "x r", axis=1)], {}),
    "nearest": (
        [node("Resize", "x  s", mode="nearest", coordinate_transformation_mode="asymmetric",
              nearest_mode="floor")], {"s": floats([1, 1, 2, 2])},
    ),
    "bilinear": ([node("Resize", "x  s", mode="linear")], {"s": floats([1, 1, 2, 2])}),
    "softmax": ([node("Softmax", "x", axis=1)], {}),
    "lrn": ([node("LRN", "x", size=3, alpha=0.3, beta=0.7, bias=2.0)], {}),
    "identity": ([node("Identity", "x")], {}),
}  # fmt: skip
for _nodes, _ in OPS.values():
    for _each in _nodes:
        if _each.op_type == "Resize":
            _each.input[:] = ["x", "", "s"]


DIFFERENT = ("max pool floor", "average pool", "relu6", "clip", "hard swish", "nearest")
CASES = [
    *((name, "bvlc") for name in OPS),
    *((name, dialect) for name in DIFFERENT for dialect in ("ssd", "nnie")),
]


@pytest.mark.parametrize(("name", "dialect"), CASES)
def test_an_op_gives_the_same_in_caffe(tmp_path: Path, name: str, dialect: str) -> None:
    nodes, arrays = OPS[name]
    made = to_caffe(onnx_file(tmp_path / "m.onnx", nodes, arrays), dialect)
    assert made.check is not None
    assert made.check.worst < 1e-5 and made.check.batches == [1, 2]
    model = read_model(tmp_path / "out.prototxt", tmp_path / "out.caffemodel")
    assert build(model).outputs == ["y"]


def test_what_dialects_write(tmp_path: Path) -> None:
    pool = onnx_file(tmp_path / "m.onnx", OPS["max pool floor"][0])
    made = to_caffe(pool)
    assert made.param.layer[1].pooling_param.round_mode == schema.PoolingParameter.FLOOR
    assert types(to_caffe(pool, "ssd")) == ["Input", "Pooling", "Slice", "Silence"] * 1 + [
        "Slice", "Silence",
    ]  # fmt: skip
    clip = onnx_file(tmp_path / "m.onnx", *OPS["relu6"])
    assert types(to_caffe(clip)) == ["Input", "Clip"]
    assert "Clip" not in types(to_caffe(clip, "nnie"))
    resize = onnx_file(tmp_path / "m.onnx", *OPS["nearest"])
    assert types(to_caffe(resize)) == ["Input", "Deconvolution"]
    assert types(to_caffe(resize, "nnie")) == ["Input", "Upsample"]
    turned = onnx_file(tmp_path / "m.onnx", [node("Transpose", "x", perm=[0, 2, 3, 1])])
    assert types(to_caffe(turned, "ssd")) == ["Input", "Permute"]
    folded = [node("Conv", "x w", "c"), node("BatchNormalization", "c s b m v")]
    ones = {name: np.ones(6, np.float32) for name in "sbmv"}
    bn = onnx_file(tmp_path / "m.onnx", folded, {"w": W, **ones})
    assert types(to_caffe(bn)) == ["Input", "Convolution", "BatchNorm", "Scale"]
    assert types(to_caffe(bn, fold_bn=True)) == ["Input", "Convolution"]


def test_a_round_trip(tmp_path: Path) -> None:
    model, again = model_of(NET), model_of(NET)
    convert_to_onnx(model, tmp_path / "net.onnx")
    made = to_caffe(tmp_path / "net.onnx")
    before = build(again)
    after = build(read_model(tmp_path / "out.prototxt", tmp_path / "out.caffemodel"))
    images = array(1, 3, 9, 9)
    before.blobs["data"].reshape(1, 3, 9, 9)
    before.reshape()
    for net in (before, after):
        net.blobs["data"].data[...] = images
        net.run_forward()
    np.testing.assert_allclose(after.blobs["prob"].data, before.blobs["prob"].data, rtol=1e-4)
    assert "Pooling" in types(made) and "Scale" in types(made)
    pool = next(layer for layer in made.param.layer if layer.type == "Pooling")
    assert pool.pooling_param.pad_h == 1  # the Pad before it is its own again


def test_a_detector_comes_back(tmp_path: Path) -> None:
    """By the node that OpenCV knows; its boxes are weights then."""
    convert_to_onnx(model_of(SSD), tmp_path / "net.onnx", Options(detection="opencv"))
    made = to_caffe(tmp_path / "net.onnx", "ssd")
    assert {"DetectionOutput", "Parameter"} <= set(types(made))
    before = build(model_of(SSD))
    after = build(read_model(tmp_path / "out.prototxt", tmp_path / "out.caffemodel"))
    images = array(1, 3, 32, 32)
    for net in (before, after):
        net.blobs["data"].data[...] = images
        net.run_forward()
    found = before.blobs["found"].data
    assert len(found[0, 0]) > 3  # the test is about something
    np.testing.assert_allclose(after.blobs["found"].data, found, rtol=1e-4, atol=1e-5)
    with pytest.raises(ConvertError, match='DetectionOutput.*"bvlc" does not know'):
        to_caffe(tmp_path / "net.onnx", "bvlc")


def test_everything_that_cannot_be_is_named_at_once(tmp_path: Path) -> None:
    nodes = [
        node("Transpose", "x", "a", perm=[0, 2, 3, 1]),
        node("Einsum", "a", "b", equation="nhwc->nchw"),
        node("Mish", "b"),
    ]
    path = onnx_file(tmp_path / "m.onnx", nodes, opset=18)
    with pytest.raises(ConvertError, match=r"2 node\(s\)") as error:
        to_caffe(path)
    assert '"n_b" (Einsum)' in str(error.value) and '"n_y" (Mish)' in str(error.value)
    nodes = [
        node("Transpose", "x", "a", perm=[0, 2, 3, 1]),
        node("Transpose", "a", "b", perm=[0, 2, 3, 1]),
        node("Pad", "b p", mode="reflect"),
    ]
    path = onnx_file(tmp_path / "m.onnx", nodes, {"p": integers([0, 0, 1, 1, 0, 0, 1, 1])})
    with pytest.raises(ConvertError, match=r"3 node\(s\)") as error:
        to_caffe(path)
    assert '"n_a" (Transpose): needs a Permute layer' in str(error.value)
    assert {each.name for each in tmp_path.iterdir()} == {"m.onnx"}


def _broken(path: Path, kind: str) -> str:
    """Spoil a good file; what its error has to say."""
    good = onnx_file(path, *OPS["conv"])
    model = onnx.ModelProto.FromString(good.read_bytes())
    if kind == "truncated":
        path.write_bytes(good.read_bytes()[:-40])
        return "truncated|damaged"
    if kind == "empty":
        path.write_bytes(b"")
        return "truncated|no graph"
    if kind == "text":
        path.write_text("layer { }")
        return "not an ONNX file"
    if kind == "cycle":
        model.graph.node[0].input[0] = "z"
        model.graph.node.append(node("Relu", "y", "z"))
        text = "cycle"
    elif kind == "lost":
        model.graph.node[0].input[1] = "nowhere"
        text = 'nothing makes "nowhere"'
    elif kind == "wrong shape":
        model.graph.initializer[0].dims[0] = 5
        text = "damaged|cannot be run"
    elif kind == "foreign":
        model.graph.node[0].domain = "com.example"
        text = r"com.example.Conv"
    else:
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        location = {"parent": "../secret", "absolute": str(path.parent.parent / "secret"),
                    "link": "link", "short": "short"}[kind]  # fmt: skip
        tensor.external_data.add(key="location", value=location)
        (path.parent / "short").write_bytes(b"1234")
        text = "outside the model's folder" if kind != "short" else "shorter"
    path.write_bytes(model.SerializeToString())
    return text


@pytest.mark.parametrize(
    "kind",
    ["truncated", "empty", "text", "cycle", "lost", "wrong shape", "foreign", "parent",
     "absolute", "link", "short"],
)  # fmt: skip
def test_bad_files(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(W.tobytes())
    (folder / "link").symlink_to(tmp_path / "secret")
    text = _broken(folder / "m.onnx", kind)
    out = [str(folder / "o.prototxt"), str(folder / "o.caffemodel")]
    assert main([str(folder / "m.onnx"), *out]) == 1
    err = capsys.readouterr().err
    assert re.search(text, err) and "Traceback" not in err
    assert not any(each.name.startswith(("o.", ".")) for each in folder.iterdir())


def test_onnxruntime_says_nothing_itself(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = onnx_file(tmp_path / "m.onnx", [node("Transpose", "x", perm=[0, 9])])
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.ClearField("shape")  # so that it is found late
    refused = pytest.raises(
        ConvertError, match="onnxruntime refuses the model: .*perm of Transpose"
    )
    with OnnxRuntime() as session, refused:
        session.open_model(model, {})
    assert capfd.readouterr() == ("", "")


def test_sizes_that_the_model_does_not_tell(tmp_path: Path) -> None:
    path = onnx_file(tmp_path / "m.onnx", *OPS["conv"], shape=("N", 4, "H", "W"))
    with pytest.raises(ConvertError, match="--input-shape x="):
        to_caffe(path)
    made = to_caffe(path, input_shapes={"x": (1, 4, 6, 6)})
    assert made.shapes["y"] == (1, 6, 6, 6)

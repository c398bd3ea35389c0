"""Whole nets to ONNX: names, batches, phases, folding, preprocessing, files, and errors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="conversions to ONNX need the extra `convert`")
pytest.importorskip("onnxruntime", reason="conversions to ONNX need the extra `convert`")

import onnx
import onnxruntime as ort

from pycaffe_fire import schema
from pycaffe_fire.cli.fire_convert import main
from pycaffe_fire.convert import Settings, check, convert, onnx_file, read_model, runtime
from pycaffe_fire.convert.caffe_to_onnx import convert_to_onnx
from pycaffe_fire.convert.checker import Result, Row, difference
from pycaffe_fire.convert.model import Model, build
from pycaffe_fire.convert.to_onnx.export import Options
from pycaffe_fire.convert.to_onnx.registry import CONVERTERS
from pycaffe_fire.errors import ConvertError, FireError
from tests.convert.nets import model_of, save

CONV = "convolution_param { num_output: 4 kernel_size: 3 pad: 1 }"
NET = f"""
name: "small"
layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ dim: 5 dim: 3 dim: 9 dim: 9 }} }} }}
layer {{ name: "conv1" type: "Convolution" bottom: "data" top: "conv1" {CONV} }}
layer {{ name: "bn1" type: "BatchNorm" bottom: "conv1" top: "conv1" }}
layer {{ name: "scale1" type: "Scale" bottom: "conv1" top: "conv1" scale_param {{ bias_term: true }} }}
layer {{ name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }}
layer {{ name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param {{ pool: AVE kernel_size: 3 stride: 2 pad: 1 }} }}
layer {{ name: "drop" type: "Dropout" bottom: "pool1" top: "pool1" }}
layer {{ name: "a" type: "Convolution" bottom: "pool1" top: "a" {CONV} }}
layer {{ name: "b" type: "Convolution" bottom: "pool1" top: "b" {CONV} }}
layer {{ name: "sum" type: "Eltwise" bottom: "a" bottom: "b" top: "sum" }}
layer {{ name: "ip" type: "InnerProduct" bottom: "sum" top: "ip" inner_product_param {{ num_output: 6 }} }}
layer {{ name: "prob" type: "Softmax" bottom: "ip" top: "prob" }}
"""  # noqa: E501
TRAIN_VAL = """
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  transform_param { crop_size: 9 mean_value: 10 mean_value: 20 mean_value: 30 scale: 0.5 }
  data_param { source: "nowhere_train" batch_size: 7 } }
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TEST }
  transform_param { crop_size: 9 mean_value: 10 mean_value: 20 mean_value: 30 scale: 0.5 }
  data_param { source: "nowhere" batch_size: 7 } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 6 } }
layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""  # noqa: E501


def ran(path: Path, values: Any) -> list[Any]:
    session = ort.InferenceSession(str(path))
    found: list[Any] = session.run(None, {session.get_inputs()[0].name: values})
    return found


def test_a_net_with_all_its_names(tmp_path: Path) -> None:
    model = model_of(NET)
    made = convert_to_onnx(model, tmp_path / "net.onnx")
    assert made.check is not None and made.check.worst < 1e-5 and made.check.batches == [1, 2]
    assert [row.layer for row in made.check.rows if not row.compared] == ["data"]
    written = onnx.load(tmp_path / "net.onnx")
    onnx.checker.check_model(written, full_check=True)
    assert (written.ir_version, written.opset_import[0].version) == (8, 17)
    assert [info.name for info in written.graph.input] == ["data"]
    assert [info.name for info in written.graph.output] == ["prob"]
    assert written.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    names = [name for node in written.graph.node for name in node.output]
    assert len(names) == len(set(names)) and {"conv1", "pool1", "sum", "ip"} <= set(names)


def test_any_batch_size(tmp_path: Path) -> None:
    model = model_of(NET)
    net = build(model_of(NET))
    convert_to_onnx(model, tmp_path / "net.onnx")
    images = np.float32(np.random.default_rng(0).normal(size=(5, 3, 9, 9)))
    net.blobs["data"].data[...] = images
    net.run_forward()
    got = ran(tmp_path / "net.onnx", images)[0]
    np.testing.assert_allclose(got, net.blobs["prob"].data, rtol=1e-4)
    np.testing.assert_allclose(ran(tmp_path / "net.onnx", images[:3])[0], got[:3], rtol=1e-5)


def test_a_training_net_becomes_what_it_computes_in_use(tmp_path: Path) -> None:
    weights = {"ip": [np.float32(np.random.default_rng(0).normal(size=(6, 243))), np.zeros(6)]}
    model = Model(schema.parse_text(TRAIN_VAL, schema.NetParameter()), weights)
    made = convert_to_onnx(model, tmp_path / "net.onnx")
    written = onnx.load(tmp_path / "net.onnx")
    assert [i.name for i in written.graph.input] == ["data"]
    assert [o.name for o in written.graph.output] == ["prob"]
    assert any("Accuracy" in note for note in made.notes)
    assert any('SoftmaxWithLoss "loss" became Softmax' in note for note in made.notes)
    props = {prop.key: prop.value for prop in written.metadata_props}
    assert props["mean"] == "10,20,30" and props["scale"] == "0.5"
    assert props["channel_order"] == "BGR" and props["preprocessing"] == "outside"


def test_preprocessing_within_the_model(tmp_path: Path) -> None:
    model = model_of(NET)
    prototxt, weights = save(model, tmp_path)
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    convert(prototxt, weights, tmp_path / "plain.onnx")
    settings = Settings(
        embed_preprocessing=True, mean="10,20,30", scale=0.02, channel_order="RGB",
        labels=str(tmp_path / "labels.txt"),
    )  # fmt: skip
    convert(prototxt, weights, tmp_path / "net.onnx", settings=settings)
    pixels = np.float32(np.random.default_rng(0).integers(0, 256, (2, 3, 9, 9)))
    mean = np.array([10, 20, 30], np.float32).reshape(1, 3, 1, 1)
    want = ran(tmp_path / "plain.onnx", (pixels[:, ::-1] - mean) * np.float32(0.02))[0]
    np.testing.assert_allclose(ran(tmp_path / "net.onnx", pixels)[0], want, rtol=1e-4)
    props = {p.key: p.value for p in onnx.load(tmp_path / "net.onnx").metadata_props}
    assert props["labels"] == "cat\ndog" and props["preprocessing"] == "embedded"


def test_folded_normalisations(tmp_path: Path) -> None:
    made = convert_to_onnx(model_of(NET), tmp_path / "net.onnx", fold_bn=True)
    kinds = [node.op_type for node in onnx.load(tmp_path / "net.onnx").graph.node]
    assert "BatchNormalization" not in kinds and "Mul" not in kinds
    assert sum("folded into" in note for note in made.notes) == 2
    assert made.check is not None and made.check.worst < 1e-5


def test_a_scale_that_two_layers_read_before_stays(tmp_path: Path) -> None:
    text = NET.replace('bottom: "a" bottom: "b" top: "sum"', 'bottom: "a" bottom: "c" top: "sum"')
    extra = 'layer { name: "c" type: "Scale" bottom: "b" top: "c" }\nlayer { name: "sum"'
    text = text.replace('layer { name: "sum"', extra)
    text = text.replace('bottom: "sum" top: "ip"', 'bottom: "both" top: "ip"')
    both = 'layer { name: "both" type: "Eltwise" bottom: "sum" bottom: "b" top: "both" }\n'
    text = text.replace('layer { name: "ip"', both + 'layer { name: "ip"')
    made = convert_to_onnx(model_of(text), tmp_path / "net.onnx", fold_bn=True)
    assert not any('"c" folded' in note for note in made.notes)


def test_weights_in_sixteen_bits(tmp_path: Path) -> None:
    prototxt, weights = save(model_of(NET), tmp_path)
    convert(prototxt, weights, tmp_path / "net.onnx")
    settings = Settings(float16=True, check_with=())
    convert(prototxt, weights, tmp_path / "half.onnx", settings=settings)
    images = np.float32(np.random.default_rng(0).normal(size=(2, 3, 9, 9)))
    want, got = (ran(tmp_path / name, images)[0] for name in ("net.onnx", "half.onnx"))
    assert 0 < np.abs(want - got).max() < 1e-2
    stored = {t.data_type for t in onnx.load(tmp_path / "half.onnx").graph.initializer}
    assert onnx.TensorProto.FLOAT16 in stored


def test_weights_in_a_file_of_their_own(tmp_path: Path) -> None:
    """What models above 2 GB get, with a lower limit."""
    net = build(model_of(NET), separate=True)
    from pycaffe_fire.convert.to_onnx.export import export

    made = export(net, Options())
    with onnx_file.writing(tmp_path / "net.onnx", made.model, made.arrays, limit=1000):
        pass
    assert onnx_file.data_path(tmp_path / "net.onnx").stat().st_size > 1000
    model, arrays = onnx_file.load(tmp_path / "net.onnx")
    assert set(arrays) == set(made.arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, made.arrays[name])
    images = np.float32(np.random.default_rng(0).normal(size=(2, 3, 9, 9)))
    assert ran(tmp_path / "net.onnx", images)[0].shape == (2, 6)


def test_a_check_in_many_pieces_finds_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []
    real = runtime.OnnxRuntime.open_model

    def counted(*arguments: Any) -> None:
        opened.append(arguments)
        real(*arguments)

    monkeypatch.setattr(runtime.OnnxRuntime, "open_model", counted)
    whole = convert_to_onnx(model_of(NET), tmp_path / "whole.onnx")
    pieces, opened[:] = len(opened), []
    monkeypatch.setattr(runtime, "PIECE", 1)  # a piece for every node
    cut = convert_to_onnx(model_of(NET), tmp_path / "cut.onnx")
    assert len(opened) > pieces + 4
    assert whole.check and cut.check
    assert cut.check.worst == pytest.approx(whole.check.worst, abs=1e-5)


def test_only_what_an_output_needs(tmp_path: Path) -> None:
    convert_to_onnx(model_of(NET), tmp_path / "net.onnx", outputs=["pool1"])
    written = onnx.load(tmp_path / "net.onnx")
    assert [o.name for o in written.graph.output] == ["pool1"]
    assert "ip.weight" not in {tensor.name for tensor in written.graph.initializer}


def test_an_existing_pair(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = model_of(NET)
    prototxt, weights = save(model, tmp_path)
    target = tmp_path / "net.onnx"
    assert main([str(prototxt), str(weights), str(target)]) == 0
    assert main(["--check", str(prototxt), str(weights), str(target)]) == 0
    assert check(prototxt, weights, target).worst < 1e-5
    other = model_of(NET, seed=1)
    _, wrong = save(other, tmp_path, "other")
    capsys.readouterr()
    assert main(["--check", str(prototxt), str(wrong), str(target)]) == 1
    assert 'first layer that differs is "relu1"' in capsys.readouterr().err


def test_a_wrong_converter_is_found_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(graph: Any, part: Any) -> str:
        return str(graph.op("LeakyRelu", part.x.name, alpha=0.01))

    monkeypatch.setitem(CONVERTERS._items, "ReLU", wrong)
    with pytest.raises(ConvertError, match=r'not kept: .* "relu1" \(ReLU\)'):
        convert_to_onnx(model_of(NET), tmp_path / "net.onnx")
    assert list(tmp_path.iterdir()) == []
    convert_to_onnx(model_of(NET), tmp_path / "net.onnx", check_with=())
    assert (tmp_path / "net.onnx").exists()


@pytest.mark.parametrize(
    "theirs, sentence",
    [(2.0, "by 1.0e[+]00 of its largest value, where 0.0001 is"), (np.inf, "BatchNorms without")],
)
def test_a_difference_is_told_in_words(theirs: float, sentence: str) -> None:
    apart = difference(np.ones(3, np.float32), np.full(3, theirs, np.float32))
    row = Row("bn1", "BatchNorm", apart, "onnxruntime, batch 1", compared=True)
    with pytest.raises(ConvertError, match=rf"bn1.*{sentence}.*\(onnxruntime, batch 1\)"):
        Result([row]).refuse("net.onnx")


def test_a_page_about_it(tmp_path: Path) -> None:
    prototxt, weights = save(model_of(NET), tmp_path)
    page = tmp_path / "page.html"
    assert main(
        [str(prototxt), str(weights), str(tmp_path / "n.onnx"), "--fold-bn", "--report", str(page)]
    ) == 0  # fmt: skip
    text = page.read_text()
    assert "<svg" in text and "folded into" in text and "<td>relu1</td>" in text
    assert not re.search(r'(src|href)="http', text)


SSD = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 32 dim: 32 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 6 kernel_size: 3 stride: 8 } }
layer { name: "norm" type: "Normalize" bottom: "conv" top: "norm" norm_param { across_spatial: false channel_shared: false } }
layer { name: "loc" type: "Convolution" bottom: "norm" top: "loc" convolution_param { num_output: 8 kernel_size: 1 } }
layer { name: "loc_perm" type: "Permute" bottom: "loc" top: "loc_perm" permute_param { order: 0 order: 2 order: 3 order: 1 } }
layer { name: "loc_flat" type: "Flatten" bottom: "loc_perm" top: "loc_flat" }
layer { name: "conf" type: "Convolution" bottom: "norm" top: "conf" convolution_param { num_output: 6 kernel_size: 1 } }
layer { name: "conf_perm" type: "Permute" bottom: "conf" top: "conf_perm" permute_param { order: 0 order: 2 order: 3 order: 1 } }
layer { name: "conf_rows" type: "Reshape" bottom: "conf_perm" top: "conf_rows" reshape_param { shape { dim: 0 dim: -1 dim: 3 } } }
layer { name: "conf_prob" type: "Softmax" bottom: "conf_rows" top: "conf_prob" softmax_param { axis: 2 } }
layer { name: "conf_flat" type: "Flatten" bottom: "conf_prob" top: "conf_flat" }
layer { name: "prior" type: "PriorBox" bottom: "norm" bottom: "data" top: "prior" prior_box_param { min_size: 10 aspect_ratio: 2 flip: false variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 } }
layer { name: "found" type: "DetectionOutput" bottom: "loc_flat" bottom: "conf_flat" bottom: "prior" top: "found"
  detection_output_param { num_classes: 3 code_type: CENTER_SIZE keep_top_k: 10 confidence_threshold: 0.2 nms_param { nms_threshold: 0.45 top_k: 20 } } }
"""  # noqa: E501


def test_an_ssd_detector_for_onnxruntime(tmp_path: Path) -> None:
    made = convert_to_onnx(model_of(SSD), tmp_path / "ssd.onnx")
    assert made.check is not None and made.check.worst < 1e-4
    kinds = {node.op_type for node in onnx.load(tmp_path / "ssd.onnx").graph.node}
    assert "NonMaxSuppression" in kinds


def test_batch_one_only_where_the_net_says_so(tmp_path: Path) -> None:
    """A literal batch size in a Reshape."""
    literal = "reshape_param { shape { dim: 1 dim: -1 dim: 3 } }"
    text = SSD.replace("reshape_param { shape { dim: 0 dim: -1 dim: 3 } }", literal)
    made = convert_to_onnx(model_of(text), tmp_path / "ssd.onnx")
    assert made.check is not None and made.check.batches == [1]
    assert any("batch size is fixed" in note for note in made.notes)


def test_an_ssd_detector_for_opencv(tmp_path: Path) -> None:
    cv2 = pytest.importorskip("cv2", reason="needs OpenCV")
    if int(cv2.__version__.split(".")[0]) > 4:
        pytest.skip("OpenCV 5.0 gives other boxes for such a node; it runs the other form")
    options = Options(detection="opencv")
    made = convert_to_onnx(
        model_of(SSD), tmp_path / "ssd.onnx", options, check_with=("onnxruntime", "opencv")
    )
    assert made.check is not None
    row = next(row for row in made.check.rows if row.layer == "found")
    assert row.compared and row.fine


def test_an_ssd_detector_for_opencv_5(tmp_path: Path) -> None:
    cv2 = pytest.importorskip("cv2", reason="needs OpenCV")
    if int(cv2.__version__.split(".")[0]) < 5:
        pytest.skip("OpenCV 4 has no GatherND; it runs the other form")
    made = convert_to_onnx(
        model_of(SSD), tmp_path / "ssd.onnx", check_with=("onnxruntime", "opencv")
    )
    assert made.check is not None
    row = next(row for row in made.check.rows if row.layer == "found")
    assert row.compared and row.fine


def test_opencv_gives_the_same(tmp_path: Path) -> None:
    pytest.importorskip("cv2", reason="needs OpenCV")
    made = convert_to_onnx(
        model_of(NET), tmp_path / "net.onnx", check_with=("onnxruntime", "opencv")
    )
    assert made.check is not None and made.check.worst < 1e-4


# What can go wrong.


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.weights.pop("a"), 'no weights for layer "a"'),
        (lambda m: m.weights.update(ip=[np.zeros((6, 9)), np.zeros(6)]), "ip"),
        (lambda m: setattr(m.param.layer[3], "type", "Scail"), "Scail"),
    ],
)
def test_bad_models(tmp_path: Path, change: Any, message: str) -> None:
    model = model_of(NET)
    change(model)
    with pytest.raises(FireError, match=message):
        convert_to_onnx(model, tmp_path / "net.onnx")
    assert list(tmp_path.iterdir()) == []


def test_bad_files_and_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prototxt, weights = save(model_of(NET), tmp_path)
    target = tmp_path / "net.onnx"
    cut = tmp_path / "cut.caffemodel"
    cut.write_bytes(weights.read_bytes()[:-100])
    for files, flags, message in (
        ([prototxt, cut, target], [], "cut off or damaged"),
        ([prototxt, weights, target], ["--opset", "12"], "opset must be 13 to 21"),
        ([prototxt, weights, target], ["--outputs", "probb"], 'did you mean "prob"'),
        ([prototxt, weights, target], ["--input-shape", "data"], "takes NAME=VALUE"),
        ([prototxt, target], [], "cannot tell what to make of"),
        ([prototxt, weights, tmp_path / "net.xyz"], [], "no known kind of file"),
        ([prototxt, weights, tmp_path / "no" / "net.onnx"], [], "cannot be written"),
    ):
        done = main([*map(str, files), *flags])
        err = capsys.readouterr().err
        assert done == 1 and message in err and "Traceback" not in err
        assert len(err.strip().splitlines()) == 1
        assert not target.exists()
    settings = Settings(embed_preprocessing=True, mean="1,2")
    with pytest.raises(ConvertError, match="the mean .* does not fit"):
        convert(prototxt, weights, tmp_path / "n.onnx", settings=settings)
    assert read_model(prototxt, weights).weights


def test_a_python_layer_is_named(tmp_path: Path) -> None:
    from pycaffe_fire.layers import Layer, register_layer
    from pycaffe_fire.layers.base import LAYERS

    @register_layer("Homemade")
    class Homemade(Layer):
        def reshape(self, bottom: Any, top: Any) -> None:
            top[0].reshape_like(bottom[0])

    try:
        text = NET.replace(
            'type: "Eltwise" bottom: "a" bottom: "b"', 'type: "Homemade" bottom: "a"'
        )
        with pytest.raises(ConvertError, match=r'no converter to ONNX for "sum" \(Homemade\)'):
            convert_to_onnx(model_of(text), tmp_path / "net.onnx")
    finally:
        del LAYERS._items["Homemade"]


def test_differences() -> None:
    a = np.array([1, -2, np.nan, np.inf], np.float32)
    assert difference(a, a.copy()) == 0
    assert difference(a, np.array([1, -2.0002, np.nan, np.inf], np.float32)) == pytest.approx(
        1e-4, rel=1e-2
    )
    assert difference(a, np.array([1, -2, 0, np.inf], np.float32)) == np.inf
    assert difference(a, a[:2]) == np.inf

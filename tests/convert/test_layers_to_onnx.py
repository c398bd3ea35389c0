"""Every layer type and parameter corner of the layer table, and real Caffe's numbers, in ONNX."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="conversions to ONNX need the extra `convert`")
pytest.importorskip("onnxruntime", reason="conversions to ONNX need the extra `convert`")

from pycaffe_fire import layer_type_list, schema
from pycaffe_fire.convert.inference import feeds, for_inference
from pycaffe_fire.convert.model import Model, build
from pycaffe_fire.convert.to_onnx import CONVERTERS
from pycaffe_fire.errors import LayerError
from pycaffe_fire.layers import layer_class
from pycaffe_fire.net.deploy import ends
from tests.convert.nets import CaseChecker, exported, layer_net, parsed, run
from tests.layers import (
    rows_detection,
    rows_neurons,
    rows_paper,
    rows_recurrent,
    rows_sequences,
    rows_shapes,
)
from tests.layers.case import Case

ROWS = [
    case
    for module in (
        rows_shapes,
        rows_neurons,
        rows_paper,
        rows_recurrent,
        rows_sequences,
        rows_detection,
    )
    for case in module.ROWS
    if case.type in CONVERTERS and "sample_weights_test" not in case.params
]
MORE = [  # corners that the layer table has no row for
    Case("ssd detections", "DetectionOutput",
         "detection_output_param { num_classes: 4 keep_top_k: 5 confidence_threshold: 0.4 "
         "nms_param { nms_threshold: 0.45 top_k: 6 } code_type: CENTER_SIZE }",
         shapes=((2, 40), (2, 40), (1, 2, 40)),
         fill=("normal", "unit", lambda _, shape: _priors(shape))),
    Case("no detections", "DetectionOutput",
         "detection_output_param { num_classes: 3 confidence_threshold: 2 "
         "nms_param { nms_threshold: 0.4 } }",
         shapes=((2, 40), (2, 30), (1, 2, 40)),
         fill=("normal", "unit", lambda _, shape: _priors(shape))),
    Case("lrn with k", "LRN", "lrn_param { local_size: 3 alpha: 2 beta: 0.75 k: 3 }"),
    Case("slice batch at points", "Slice", "slice_param { axis: 0 slice_point: 1 }",
         shapes=((3, 2),), tops=2),
]  # fmt: skip
GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "layers").glob("*.npz"))


def _priors(shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(3)
    low = rng.uniform(0, 0.5, (shape[2] // 4, 2))
    boxes = np.concatenate([low, low + rng.uniform(0.2, 0.5, low.shape)], axis=1)
    return np.stack([boxes.reshape(-1), np.full(shape[2], 0.1)])[None]


def goes(kind: str) -> bool:
    """Is nothing, or another layer, left of such a layer in a net that is used?"""
    tops = [] if layer_class(kind).tops[1] == 0 else ["y"]
    return ends(schema.LayerParameter(type=kind, bottom=["x"], top=tops))


def test_every_layer_type_has_a_way_into_onnx() -> None:
    strange = [
        kind
        for kind in layer_type_list()
        if kind not in (*CONVERTERS, "Input") and not feeds(kind) and not goes(kind)
    ]
    # Code cannot be converted; what a decoder reads and a net proposes is no graph of fixed sizes.
    assert sorted(strange) == ["CTCGreedyDecoder", "Proposal", "Python"]
    assert {case.type for case in ROWS} == set(CONVERTERS)


@pytest.mark.parametrize("case", [*ROWS, *MORE], ids=lambda case: case.name)
def test_a_layer_gives_the_same_in_onnxruntime(case: Case) -> None:
    net = layer_net(case)
    made = exported(net)
    checker = CaseChecker(net, made.model, made.arrays, made.tops)
    checker.case = case
    result = checker.run_onnxruntime(None)
    rows = [row for row in result.rows if row.type == case.type]
    assert rows[0].compared
    result.refuse(case.name)


def test_a_draw_in_use_is_refused() -> None:
    case = Case("drawn", "Dropout", "dropout_param { sample_weights_test: true }")
    with pytest.raises(LayerError, match="sample_weights_test"):
        exported(layer_net(case))


@pytest.mark.parametrize("opset", [13, 18, 21])
@pytest.mark.parametrize(
    "name", ["argmax_values", "mvn", "reduction_mean", "slice_equal", "interp_zoom", "lstm"]
)
def test_other_opsets(name: str, opset: int) -> None:
    case = next((case for case in ROWS if case.name.startswith(name.split("_")[0])), None)
    case = next((each for each in ROWS if each.name == name), case)
    assert case is not None
    net = layer_net(case)
    made = exported(net, opset=opset)
    assert made.model.opset_import[0].version == opset
    checker = CaseChecker(net, made.model, made.arrays, made.tops)
    checker.case = case
    checker.run_onnxruntime(None).refuse(case.name)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_real_caffe_s_numbers(path: Path) -> None:
    """Reference cases of real Caffe: the exported layer in onnxruntime gives its tops."""
    data = np.load(path)
    param = parsed(str(data["prototxt"]))
    kind = next(layer.type for layer in param.layer if layer.name == "layer")
    blobs = [data[f"param{i}"] for i in range(9) if f"param{i}" in data]
    if goes(kind):
        pytest.skip("a loss or a score: nothing of it is left")
    if kind == "BatchNorm" and str(data["phase"]) == "TRAIN":
        for layer in param.layer:  # in use a net takes its averages
            if layer.name == "layer" and not layer.batch_norm_param.HasField("use_global_stats"):
                layer.batch_norm_param.use_global_stats = False
    model = Model(param, {"layer": blobs} if blobs else {})
    net = build(for_inference(model), separate=True, need_weights=False)
    made = exported(net)
    bottoms = {i: data[f"bottom{i}"] for i in range(9) if f"bottom{i}" in data}
    values = {f"{name}{i}": value for i, value in bottoms.items() for name in ("in", "raw")}
    for number in range(9):
        if f"top{number}" in data:
            want = data[f"top{number}"]
            got = run(made, values, f"out{number}")
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())

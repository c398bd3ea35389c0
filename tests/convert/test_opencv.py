"""Every layer type and nets of models/ in OpenCV's dnn module, as far as its importer can."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="conversions to ONNX need the extra `convert`")
pytest.importorskip("onnxruntime", reason="conversions to ONNX need the extra `convert`")
pytest.importorskip("cv2", reason="needs OpenCV")

import cv2
from convert_models import MODELS, both_ways

from pycaffe_fire.convert import Settings
from pycaffe_fire.convert.onnx_file import writing
from tests.convert.nets import CaseChecker, exported, layer_net
from tests.convert.test_layers_to_onnx import MORE, ROWS
from tests.convert.test_models import SIDES
from tests.layers.case import Case

# Why OpenCV does not give the numbers of a layer type or of a row of the table, by its version;
# the check says so to users.
BEYOND_4 = {
    "ContinuationIndicator": "it runs no net whose outputs are constant",
    "Flip": "its Slice cannot go backwards",
    "LayerNorm": "it loads the net and gives other numbers",
    "ROIAlign": "it has no RoiAlign",
    "ave pooling of whole volumes": "its global pooling has two spatial axes",
    "max pooling of whole volumes": "its global pooling has two spatial axes",
    "DetectionOutput": "it has no GatherND; `--detection opencv` is the form for OpenCV 4",
    "Filter": "it has no Compress",
    "LSTM": "it has no Scan, whose body is a graph",
    "Lstm": "it has no Scan, whose body is a graph",
    "Normalize": "it loads the net and gives other numbers",
    "Parameter": "it runs no net without inputs",
    "PriorBox": "it runs no net whose outputs are constant",
    "ROIPooling": "it has no MaxRoiPool",
    "RNN": "it has no Scan, whose body is a graph",
    "argmax_axis": "its TopK refuses the shape",
    "argmax_short": "its TopK refuses the shape",
    "argmax_values": "its TopK refuses the shape",
    "conv 4-D": "it has at most three spatial axes",
    "crop": "it wants all inputs of a net to be read",
    "crop_all_axes_one_offset": "it wants all inputs of a net to be read",
    "crop_like_a_blob_with_more_axes": "it wants all inputs of a net to be read",
    "deconv 1-D": "its deconvolutions have two spatial axes",
    "deconv 3-D": "its deconvolutions have two spatial axes",
    "deconv dilated": "its deconvolutions ignore dilations",
    "deconv without spatial axes": "its deconvolutions have two spatial axes",
    "interp_like": "it wants all inputs of a net to be read",
    "mvn across": "it loads the net and gives other numbers",
    "reduction_sum": "it loads the net and gives other numbers",
    "reduction_sumsq": "it crashes",
}
BEYOND_5 = {
    "ave pooling of whole volumes": "its global pooling has two spatial axes",
    "max pooling of whole volumes": "its global pooling has two spatial axes",
    "max pooling mask of volumes": "its mask of a pooling has two spatial axes",
    "Filter": "it has no Compress",
    "LSTM": "it has no Scan, whose body is a graph",
    "Lstm": "it has no Scan, whose body is a graph",
    "ROIPooling": "it has no MaxRoiPool",
    "RNN": "it has no Scan, whose body is a graph",
    "conv 4-D": "it has at most three spatial axes",
    "interp_like": "it reads memory that it never wrote where an input is read for its shape alone",
    "reduction_sumsq": "it loses the shape",
}
VERSION = cv2.__version__.partition(".")[0]
BEYOND = {"4": BEYOND_4, "5": BEYOND_5}.get(VERSION, {})


def test_the_lists_name_types_and_rows_of_the_table() -> None:
    rows = [*ROWS, *MORE]
    assert {*BEYOND_4, *BEYOND_5} <= {case.type for case in rows} | {case.name for case in rows}


@pytest.mark.parametrize("case", [*ROWS, *MORE], ids=lambda case: case.name)
def test_a_layer_gives_the_same_in_opencv(tmp_path: Path, case: Case) -> None:
    beyond = BEYOND.get(case.type) or BEYOND.get(case.name)
    if beyond:
        pytest.skip(f"OpenCV {VERSION}: {beyond}")
    net = layer_net(case)
    made = exported(net)
    checker = CaseChecker(net, made.model, made.arrays, made.tops)
    checker.case = case
    with writing(tmp_path / "layer.onnx", made.model, made.arrays) as path:
        checker.run_opencv(str(path)).refuse(case.name)


@pytest.mark.parametrize("name", SIDES)
def test_a_model_gives_the_same_in_opencv(tmp_path: Path, name: str) -> None:
    side = SIDES[name]
    shapes = {"data": (1, 3, side, side)} if side else {}
    settings = Settings(input_shapes=shapes, check_with=("onnxruntime", "opencv"))
    assert len(both_ways(MODELS / name / "deploy.prototxt", tmp_path, settings, side)) == 3

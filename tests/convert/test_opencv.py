"""Every layer type and the nets of models/ in OpenCV's dnn module, as far as it can."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="conversions to ONNX need the extra `convert`")
cv2 = pytest.importorskip("cv2", reason="needs OpenCV")

from pycaffe_fire.convert.onnx_file import writing
from tests.convert.nets import CaseChecker, exported, layer_net
from tests.convert.test_layers_to_onnx import MORE, ROWS
from tests.layers.case import Case

CANNOT: dict[str, str] = {}


@pytest.mark.parametrize("case", [*ROWS, *MORE], ids=lambda case: case.name)
def test_a_layer_gives_the_same_in_opencv(tmp_path: Path, case: Case) -> None:
    net = layer_net(case)
    made = exported(net)
    checker = CaseChecker(net, made.model, made.arrays, made.tops)
    checker.case = case
    with writing(tmp_path / "layer.onnx", made.model, made.arrays) as path:
        result = checker.run_opencv(str(path))
    result.refuse(case.name)

"""The nets of models/ to ONNX and back; the large ones on small images."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="conversions to ONNX need the extra `convert`")
pytest.importorskip("onnxruntime", reason="conversions to ONNX need the extra `convert`")

from convert_models import MODELS, both_ways

from pycaffe_fire.convert import Settings

# The sides of images, where not the net's own. The other nets have products whose weights are for
# one size only, or many layers: `tools/convert_models.py` runs all of them at full size.
SIDES = {"lenet": 0, "cifar10_full": 0, "squeezenet_v1.1": 63, "mobilenet_v1": 64}


@pytest.mark.parametrize("name", SIDES)
def test_a_model_both_ways(tmp_path: Path, name: str) -> None:
    side = SIDES[name]
    shapes = {"data": (1, 3, side, side)} if side else {}
    prototxt = MODELS / name / "deploy.prototxt"
    lines = both_ways(prototxt, tmp_path, Settings(input_shapes=shapes), side)
    assert len(lines) == 3  # each would have failed above 1e-4

"""The bench of inference: a tiny net in the runtimes that are installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .test_bench import bench  # noqa: F401

TINY = """
layer { name: "data" type: "Input" top: "data"
  input_param { shape { dim: 10 dim: 3 dim: 12 dim: 12 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 8 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "norm" type: "BatchNorm" bottom: "conv" top: "conv" }
layer { name: "scale" type: "Scale" bottom: "conv" top: "conv" scale_param { bias_term: true } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool"
  pooling_param { pool: MAX kernel_size: 3 stride: 2 } }
layer { name: "fc" type: "InnerProduct" bottom: "pool" top: "fc"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
"""
SHORT = ["--threads", "1", "--repeat", "1", "--starts", "1", "--limit", "0"]


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    path = tmp_path / "deploy.prototxt"
    path.write_text(TINY)
    return str(path)


def test_runtimes_agree_and_are_timed(
    bench: Any,  # noqa: F811
    tiny: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("onnxruntime")
    infer, target = bench("infer"), tmp_path / "out.json"
    left_out = [name for name in infer.RUNTIMES if name not in ("pycaffe_fire", "onnxruntime")]
    run = [tiny, "--batch", "2", *SHORT, "--without", ",".join(left_out), "--json", str(target)]
    assert infer.main(run) == 0
    assert "batch 2" in capfd.readouterr().out
    figures = json.loads(target.read_text())["batches"]["2"]
    assert set(figures) == {"pycaffe_fire", "onnxruntime"}
    for each in figures.values():
        assert 0 < each["minimum"] <= each["median"] <= each["percentile95"] < each["start"]
        assert each["peak_memory"] > 0 and each["steps"] >= 1


def test_other_scores_are_no_race(bench: Any, tmp_path: Path) -> None:  # noqa: F811
    infer = bench("infer")
    infer.np.save(tmp_path / "pycaffe_fire.npy", infer.np.ones((1, 2)))
    infer.np.save(tmp_path / "other.npy", infer.np.array([1, 1.1]))
    with pytest.raises(infer.BenchError, match=r"scores of other are 1\.0e-01 of ours apart"):
        infer._compare("other", tmp_path)


def test_an_absent_runtime_is_named_and_left_out(
    bench: Any,  # noqa: F811
    tiny: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("onnxruntime")
    infer, hidden = bench("infer"), tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "cv2.py").write_text("raise ImportError('no cv2 here')")
    monkeypatch.setenv("PYTHONPATH", str(hidden))
    left_out = [name for name in infer.RUNTIMES if name not in ("pycaffe_fire", "OpenCV")]
    assert infer.main([tiny, "--batch", "1", *SHORT, "--without", ",".join(left_out)]) == 0
    assert "without OpenCV: not installed (no cv2 here)" in capfd.readouterr().out


@pytest.mark.parametrize("text", ["0", "one", "1,-4"])
def test_wrong_batches_are_refused(
    bench: Any,  # noqa: F811
    tiny: str,
    capfd: pytest.CaptureFixture[str],
    text: str,
) -> None:
    with pytest.raises(SystemExit):
        bench("infer").main([tiny, "--batch", text])
    assert "wants batches like 1,4,16" in capfd.readouterr().err

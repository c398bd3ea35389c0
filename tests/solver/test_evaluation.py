"""Mean average precision of detections: SSD's three versions and its log lines."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from pycaffe_fire import schema
from pycaffe_fire.backend import cpu_backend
from pycaffe_fire.errors import SolverError
from pycaffe_fire.report.text import CaffeLog
from pycaffe_fire.solver import Solver, SolverOptions
from pycaffe_fire.solver.average_precision import VERSIONS, average_precision
from tests.random_numbers import RNG
from tests.solver.solver_cases import SGD, body, rows_layer, write_rows


def slow_precision(scores: Any, right: Any, objects: int, version: str) -> float:
    """SSD's loops, in its float32."""
    pairs = sorted(zip(scores, right, strict=True), key=lambda p: -p[0])
    hits, precision, recall = 0, [], []
    for i, (_, hit) in enumerate(pairs, 1):
        hits += hit
        precision.append(np.float32(hits / i))
        recall.append(np.float32(hits) / np.float32(objects))
    total = 0.0
    if version == "11point":
        for point in range(11):
            total += max((p for p, r in zip(precision, recall, strict=True) if r >= point / 10),
                         default=0.0) / 11  # fmt: skip
    elif version == "MaxIntegral":
        best, last = precision[-1], recall[-1]
        for p, r in zip(precision[-2::-1], recall[-2::-1], strict=True):
            best = max(best, p)
            total += best * (last - r)
            last = r
        total += best * last
    else:
        last = np.float32(0)
        for p, r in zip(precision, recall, strict=True):
            total += p * (r - last)
            last = r
    return float(total)


@pytest.mark.parametrize("version", VERSIONS)
def test_average_precision(version: str) -> None:
    for count, objects in ((1, 1), (5, 3), (40, 25), (200, 90)):
        scores, right = RNG.random(count), np.zeros(count, int)
        right[RNG.permutation(count)[: min(count, objects)]] = 1
        got = average_precision(scores, right, objects, version)
        assert got == pytest.approx(slow_precision(scores, right, objects, version), abs=1e-5)
        assert 0 < got <= 1
    assert average_precision([0.9, 0.8, 0.1], [1, 1, 0], 2, version) == pytest.approx(1)
    assert average_precision([], [], 3, version) == average_precision([0.5], [0], 0, version) == 0


def test_worked_example() -> None:
    """Right, wrong, right, of four objects: precision 1, 1/2, 2/3 at recall 1/4, 1/4, 1/2."""
    scores, right = [0.9, 0.8, 0.7], [1, 0, 1]
    assert average_precision(scores, right, 4, "Integral") == pytest.approx(1 / 4 + 1 / 6)
    assert average_precision(scores, right, 4, "MaxIntegral") == pytest.approx(1 / 4 + 1 / 6)
    assert average_precision(scores, right, 4, "11point") == pytest.approx((3 + 3 * 2 / 3) / 11)


def detections(folder: Path, passes: int = 4) -> str:
    """A test net that reads detections and objects of one image in every pass."""
    rng = np.random.default_rng(1)
    truth = np.zeros((passes, 1, 5, 8), np.float32)
    low = rng.uniform(0, 0.6, (passes, 5, 2))
    truth[:, 0, :, 1] = 1 + rng.integers(0, 2, (passes, 5))
    truth[:, 0, :, 3:5], truth[:, 0, :, 5:7] = low, low + 0.3
    found = np.zeros((passes, 1, 9, 7), np.float32)
    found[:, 0, :, 1:2] = np.resize(truth[:, 0, :, 1:2], (passes, 9, 1))
    found[:, 0, :5, 1] = truth[:, 0, :, 1]
    found[:, 0, :, 2] = rng.permutation(9 * passes).reshape(passes, 9) / 40
    found[:, 0, :5, 3:] = truth[:, 0, :, 3:7] + rng.normal(0, 0.04, (passes, 5, 4))
    found[:, 0, 5:, 3:] = rng.random((passes, 4, 4))
    file = folder / "found.h5"
    with h5py.File(file, "w") as out:
        out["found"], out["truth"] = found, truth
    (folder / "found.txt").write_text(f"{file}\n")
    return f"""layer {{ name: "found" type: "HDF5Data" top: "found" top: "truth"
        hdf5_data_param {{ source: "{folder / "found.txt"}" batch_size: 1 }} }}
      layer {{ name: "detection_eval" type: "DetectionEvaluate" bottom: "found" bottom: "truth"
        top: "detection_eval" detection_evaluate_param {{ num_classes: 3 }} }}"""


def make(folder: Path, settings: str, test_net: str, **options: Any) -> Solver:
    text = f"{SGD} test_iter: 4 test_interval: 1 max_iter: 1 {settings}"
    param = schema.parse_text(text, schema.SolverParameter())
    train = rows_layer(write_rows(folder), 4) + body()
    param.train_net_param.CopyFrom(schema.parse_text(train, schema.NetParameter()))
    param.test_net_param.add().CopyFrom(schema.parse_text(test_net, schema.NetParameter()))
    return Solver(param, SolverOptions(cpu_backend(1), seed=1, **options))


def test_a_solver_prints_what_ssd_prints(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    values = {}
    for version in VERSIONS:
        settings = f'eval_type: "detection" ap_version: "{version}" show_per_class_result: true'
        caplog.clear()
        caplog.set_level(logging.INFO, "pycaffe_fire")
        solver = make(tmp_path, settings, detections(tmp_path), observers=[CaffeLog()])
        (output,) = solver.test(0)
        lines = [record.getMessage() for record in caplog.records][-3:]
        per_class = [float(line.partition(": ")[2]) for line in lines[:2]]
        assert [line.partition(": ")[0] for line in lines[:2]] == ["class1", "class2"]
        assert lines[2] == f"    Test net output #0: detection_eval = {output.value:g}"
        assert output.value == pytest.approx(sum(per_class) / 2, abs=1e-5)
        values[version] = output.value
        solver.close()
    assert len(set(values.values())) == 3 and values["Integral"] <= values["MaxIntegral"]


LOSSES = '{ name: "d" type: "DummyData" top: "d" dummy_data_param { shape { dim: 2 } } }'


@pytest.mark.parametrize(
    "settings, judged, message",
    [
        ('eval_type: "detections"', True, 'unknown eval_type "detections"; known: class'),
        ('eval_type: "detection"', False, "no output comes from a DetectionEvaluate layer"),
        ("", True, 'output "detection_eval" judges detections; say eval_type: "detection"'),
        ('eval_type: "detection" ap_version: "12point"', True, 'did you mean "11point"'),
    ],
)
def test_what_does_not_fit(tmp_path: Path, settings: str, judged: bool, message: str) -> None:
    net = detections(tmp_path) if judged else f"layer {LOSSES}"
    with pytest.raises(SolverError, match=message):
        make(tmp_path, settings, net)


def test_outputs_of_changing_shape_have_no_mean(tmp_path: Path) -> None:
    detect = """layer { name: "p" type: "DetectionOutput" bottom: "l" bottom: "c" bottom: "b"
      top: "o" detection_output_param { num_classes: 2 confidence_threshold: 0.5 } }"""
    rng = np.random.default_rng(0)
    with h5py.File(tmp_path / "p.h5", "w") as out:
        out["l"], out["c"] = np.zeros((4, 16)), rng.random((4, 8))
        low = rng.uniform(0, 0.5, (4, 4, 2))
        boxes = np.concatenate((low, low + 0.2), axis=2).reshape(4, 16)
        out["b"] = np.stack((boxes, np.full((4, 16), 0.1)), axis=1)
    (tmp_path / "p.txt").write_text(f"{tmp_path / 'p.h5'}\n")
    data = f"""layer {{ name: "d" type: "HDF5Data" top: "l" top: "c" top: "b"
        hdf5_data_param {{ source: "{tmp_path / "p.txt"}" batch_size: 1 }} }}"""
    solver = make(tmp_path, "", data + detect)
    with pytest.raises(SolverError, match='output "o" has another shape in every pass'):
        solver.test(0)

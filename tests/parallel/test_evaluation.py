"""Tests of detections on real ranks: the mAP and the files of one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.parallel.test_jobs import run, run_here
from tests.solver.solver_cases import SGD, body, rows_layer, write_rows

PASSES, PRIORS, CLASSES = 7, 6, 3
TEST_NET = """
layer { name: "predictions" type: "HDF5Data" top: "loc" top: "conf" top: "prior" top: "truth"
  hdf5_data_param { source: "predictions.txt" batch_size: 1 } }
layer { name: "found" type: "DetectionOutput" bottom: "loc" bottom: "conf" bottom: "prior"
  top: "found" detection_output_param { num_classes: 3 confidence_threshold: 0.2
    nms_param { nms_threshold: 0.45 }
    save_output_param { output_directory: "results" output_name_prefix: "comp4_det_test_"
      output_format: "VOC" label_map_file: "labels.prototxt" name_size_file: "sizes.txt" } } }
layer { name: "detection_eval" type: "DetectionEvaluate" bottom: "found" bottom: "truth"
  top: "detection_eval" detection_evaluate_param { num_classes: 3 name_size_file: "sizes.txt" } }
layer { name: "kept" type: "HDF5Output" bottom: "loc" bottom: "conf"
  hdf5_output_param { file_name: "kept.h5" } }
"""
SOLVER = f"""
train_net: "train.prototxt" test_net: "test.prototxt" test_iter: {PASSES} test_interval: 1
max_iter: 1 snapshot_after_train: false eval_type: "detection" ap_version: "11point"
show_per_class_result: true
"""


def project(folder: Path) -> Path:
    """A training of one iteration with a test before and one after it, of seven images."""
    folder.mkdir()
    rng = np.random.default_rng(3)
    low = rng.uniform(0, 0.5, (PASSES, PRIORS, 2))
    boxes = np.concatenate([low, low + 0.3], axis=2)
    truth = np.zeros((PASSES, 1, PRIORS, 8))
    truth[:, 0, :, 1] = 1 + rng.integers(0, 2, (PASSES, PRIORS))
    truth[:, 0, :, 3:7] = boxes + rng.normal(0, 0.03, boxes.shape)
    with h5py.File(folder / "predictions.h5", "w") as file:
        file["loc"] = rng.normal(0, 0.2, (PASSES, PRIORS * 4))
        file["conf"] = rng.uniform(size=(PASSES, PRIORS * CLASSES))
        flat = boxes.reshape(PASSES, -1)
        file["prior"] = np.stack([flat, np.full(flat.shape, 0.1)], axis=1)
        file["truth"] = truth
    (folder / "predictions.txt").write_text("predictions.h5\n")
    sizes = rng.integers(100, 500, (PASSES, 2))
    (folder / "sizes.txt").write_text("".join(f"im{i} {h} {w}\n" for i, (h, w) in enumerate(sizes)))
    (folder / "labels.prototxt").write_text(
        'item { name: "cat" label: 1 } item { name: "dog" label: 2 }'
    )
    (folder / "train.prototxt").write_text(rows_layer(write_rows(folder), 6) + body())
    (folder / "test.prototxt").write_text(TEST_NET)
    (folder / "solver.prototxt").write_text(SGD + SOLVER)
    return folder


def results(folder: Path, log: str) -> tuple[list[str], dict[str, str], list[Any]]:
    """What the log tells of tests, the files of detections, and what HDF5Output kept."""
    words = ("Test net output", "class1", "class2")
    lines = [line.partition("] ")[2] for line in log.splitlines() if any(w in line for w in words)]
    with h5py.File(folder / "kept.h5") as file:
        kept = file["data"][:].reshape(2 * PASSES, -1).tolist()
    return lines, {path.name: path.read_text() for path in (folder / "results").iterdir()}, kept


def test_ranks_give_the_map_and_the_files_of_one_process(tmp_path: Path) -> None:
    """Seven passes on three ranks: nobody has them all, and only one writes."""
    pytest.importorskip("mpi4py", reason="several ranks need mpi4py")
    alone, many = project(tmp_path / "alone"), project(tmp_path / "many")
    lines, files, kept = results(alone, run_here(alone, "--leaves", "6"))
    assert len(lines) == 6 and "detection_eval = 0." in lines[2]
    assert sorted(files) == ["comp4_det_test_cat.txt", "comp4_det_test_dog.txt"]
    images = {line.split()[0] for text in files.values() for line in text.splitlines()}
    assert images == {f"im{i}" for i in range(PASSES)}
    assert kept[:PASSES] == kept[PASSES:] and len({tuple(row) for row in kept}) == PASSES
    assert results(many, run(many, "--leaves", "6", "-n", "3")) == (lines, files, kept)

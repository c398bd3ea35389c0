"""The files that DetectionOutput writes after a whole test."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.errors import LayerError
from tests.layers.case import Array, Case, Trial

PRIORS = np.array([[0.1, 0.1, 0.3, 0.3], [0.5, 0.5, 0.9, 0.95], [-0.2, 0.4, 1.2, 0.6]])
CONF = np.array([[0.1, 0.8, 0.1], [0.1, 0.25, 0.6], [0.9, 0.05, 0.123456789]])
LABELS = """
item { name: "none_of_the_above" label: 0 display_name: "background" }
item { name: "cat" label: 1 } item { name: "dog" label: 2 }
"""


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers write there, and nowhere else unless somebody says so."""
    monkeypatch.chdir(tmp_path)


def layer(folder: Path, fields: str, num: int = 1) -> Trial:
    """Three priors and two classes; `folder` gets what the layer wants to read."""
    (folder / "labels.prototxt").write_text(LABELS)
    (folder / "sizes.txt").write_text("a 100 200\nb 50 40\n\n000007 10 10\n")
    saving = (
        f'save_output_param {{ label_map_file: "{folder}/labels.prototxt" '
        f'name_size_file: "{folder}/sizes.txt" output_directory: "{folder}/out/put" {fields} }}'
    )
    params = (
        "detection_output_param { num_classes: 3 confidence_threshold: 0.1 "
        f"nms_param {{ nms_threshold: 0.4 }} {saving} }}"
    )
    shapes = ((num, 12), (num, 9), (1, 2, 12))
    return Trial(
        Case("detections", "DetectionOutput", params, shapes, gradients=()), NumPyBackend()
    )


def show(trial: Trial, conf: Array = CONF) -> None:
    """One forward pass with the priors themselves as predictions."""
    num = trial.case.shapes[0][0]
    priors = np.stack([PRIORS.reshape(-1), np.ones(12)])[None]
    trial.forward([np.zeros((num, 12)), np.resize(conf, (num, 9)), priors])


def written(folder: Path) -> dict[str, str]:
    out = folder / "out" / "put"
    return {p.name: p.read_text() for p in sorted(out.iterdir())} if out.exists() else {}


def test_voc_has_a_file_for_each_class_after_the_last_image(tmp_path: Path) -> None:
    trial = layer(tmp_path, 'output_format: "VOC" output_name_prefix: "comp4_" num_test_image: 2')
    show(trial)
    assert written(tmp_path) == {}, "half a test is not written"
    show(trial)
    assert written(tmp_path) == {
        "comp4_cat.txt": "a 0.8 20 10 60 30\na 0.25 100 50 180 95\n"
        "b 0.8 4 5 12 15\nb 0.25 20 25 36 47\n",
        "comp4_dog.txt": "a 0.6 100 50 180 95\na 0.123457 0 40 200 60\n"
        "b 0.6 20 25 36 47\nb 0.123457 0 20 40 30\n",
    }
    assert sorted(os.listdir(tmp_path / "out" / "put")) == ["comp4_cat.txt", "comp4_dog.txt"]


def test_the_next_test_starts_with_the_first_image_again(tmp_path: Path) -> None:
    trial = layer(tmp_path, 'output_format: "ILSVRC" output_name_prefix: "det" num_test_image: 1')
    show(trial)
    first = written(tmp_path)["det.txt"]
    assert first.startswith("a 1 0.8 20 10 60 30\n") and first.count("\n") == 4
    show(trial, np.zeros(9))
    assert written(tmp_path) == {"det.txt": ""}, "nothing was found this time"


def test_a_batch_may_hold_the_end_of_one_test_and_the_start_of_the_next(tmp_path: Path) -> None:
    trial = layer(tmp_path, 'output_format: "ILSVRC" output_name_prefix: "det"', num=2)
    show(trial)
    assert written(tmp_path) == {}
    show(trial)
    images = [line.split()[0] for line in written(tmp_path)["det.txt"].splitlines()]
    assert images == ["a"] * 4 + ["b"] * 4 + ["000007"] * 4


def test_coco_is_json_with_sizes_and_numbers(tmp_path: Path) -> None:
    trial = layer(tmp_path, 'output_format: "COCO" output_name_prefix: "detections"')
    for _ in range(3):
        show(trial)
    rows = json.loads(written(tmp_path)["detections.json"])
    assert len(rows) == 12
    assert rows[1] == {
        "image_id": "a", "category_id": "cat", "bbox": [100.0, 50.0, 80.0, 45.0], "score": 0.25,
    }  # fmt: skip
    assert rows[-1]["image_id"] == 7 and rows[-1]["score"] == 0.12345679


@pytest.mark.parametrize(
    ("resize", "box"),
    [
        ("resize_mode: WARP", "100 50 180 95"),
        # 200 x 100 in a square: a quarter of the height is padding above, and as much below.
        ("resize_mode: FIT_LARGE_SIZE_AND_PAD", "100 50 180 100"),
        ("resize_mode: FIT_SMALL_SIZE", "100 50 180 95"),
        ("resize_mode: FIT_SMALL_SIZE height_scale: 1000 width_scale: 100", "50 500 90 950"),
    ],
)
def test_boxes_of_resized_images(tmp_path: Path, resize: str, box: str) -> None:
    fields = (
        f'num_test_image: 1 output_format: "VOC" resize_param {{ height: 300 width: 300 {resize} }}'
    )
    trial = layer(tmp_path, fields)
    show(trial)
    assert written(tmp_path)["cat.txt"].splitlines()[1] == f"a 0.25 {box}"


def test_what_is_missing_is_said_and_nothing_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trial = layer(tmp_path, "")
    for _ in range(3):
        show(trial)
    assert written(tmp_path) == {}
    assert "writes no files, because save_output_param has no output_format" in caplog.text


def test_lists_that_are_not_there_keep_no_net_from_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Path, "write_text", lambda *_: 0)  # neither label map nor names and sizes
    show(layer(tmp_path, 'output_format: "VOC"'))
    assert written(tmp_path) == {}
    assert "writes no files, because there is no" in caplog.text
    assert "labels.prototxt and no" in caplog.text and "sizes.txt" in caplog.text


@pytest.mark.parametrize(
    ("fields", "sizes", "labels", "match"),
    [
        ('output_format: "PASCAL"', None, None, '"PASCAL" is unknown; known: VOC, COCO'),
        ('output_format: "VOC" num_test_image: 4', None, None, "is 4, but .* names only 3"),
        ('output_format: "VOC"', "a 10\n", None, 'sizes.txt:1: expected "name height width"'),
        ('output_format: "VOC"', "a 10 0\n", None, "sizes.txt:1: expected"),
        ('output_format: "VOC"', f"a 10 {'9' * 5000}\n", None, "sizes.txt:1: expected"),
        ('output_format: "VOC"', "\n", None, "names no images"),
        ('output_format: "VOC"', None, 'item { name: "cat" label: 1 }', "no name for label 2"),
        ('output_format: "VOC"', None, LABELS + 'item { name: "x" label: 2 }', "occurs twice"),
        ('output_format: "VOC"', None, 'item { name: "../x" label: 1 }', "part of a file name"),
        ('output_format: "VOC"', None, "item {", "label_map_file cannot be read"),
        ('output_format: "VOC" resize_param { width: 3 }', None, None, "needs height and width"),
    ],
)
def test_bad_files_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: str, sizes: str | None,
    labels: str | None, match: str,
) -> None:  # fmt: skip
    write = Path.write_text

    def changed(path: Path, text: str) -> int:
        given = {"sizes.txt": sizes, "labels.prototxt": labels}.get(path.name)
        return write(path, text if given is None else given)

    monkeypatch.setattr(Path, "write_text", changed)
    with pytest.raises(LayerError, match=match) as caught:
        layer(tmp_path, fields)
    assert 'layer "layer" (DetectionOutput): save_output_param' in str(caught.value)


@pytest.mark.parametrize("kind", ["VOC", "COCO", "ILSVRC"])
def test_detections_that_are_not_finite_are_refused(tmp_path: Path, kind: str) -> None:
    """Weights that diverged make boxes of NaN, which no format can hold."""
    trial = layer(tmp_path, f'output_format: "{kind}"')
    priors = np.stack([PRIORS.reshape(-1), np.ones(12)])[None]
    with pytest.raises(LayerError, match="a detection of image a is not finite.*diverged"):
        trial.forward([np.full((1, 12), np.inf), CONF.reshape(1, 9), priors])
    assert written(tmp_path) == {}


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    trial = layer(tmp_path, 'output_format: "VOC" num_test_image: 1')
    with pytest.raises(LayerError, match="output_directory .*out/put cannot be made"):
        show(trial)

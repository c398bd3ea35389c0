"""DetectionEvaluate against SSD's definition, detection by detection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema

NET = """input: "found" input_shape { dim: 1 dim: 1 dim: %d dim: 7 }
input: "truth" input_shape { dim: 1 dim: 1 dim: %d dim: 8 }
layer { name: "e" type: "DetectionEvaluate" bottom: "found" bottom: "truth" top: "e"
  detection_evaluate_param { %s } }"""


def evaluate(found: Any, truth: Any, param: str, step: int = 0, images: int = 1) -> Any:
    text = NET % (len(found), len(truth), param)
    net = caffe.Net(schema.parse_text(text, schema.NetParameter()), caffe.TEST)
    net.context.step, net.context.images = step, images
    net.blobs["found"].data[0, 0], net.blobs["truth"].data[0, 0] = found, truth
    return net.forward()["e"][0, 0]


def share(a: Any, b: Any, pixel: float) -> float:
    wide = min(a[2], b[2]) - max(a[0], b[0]) + pixel
    high = min(a[3], b[3]) - max(a[1], b[1]) + pixel
    if wide <= pixel * 1e-9 or high <= pixel * 1e-9 or wide < 0 or high < 0:
        return 0.0
    whole = sum((x[2] - x[0] + pixel) * (x[3] - x[1] + pixel) for x in (a, b))
    return float(wide * high / (whole - wide * high))


def judged(
    found: Any, truth: Any, classes: int, difficult: bool, pixels: Any = None
) -> list[list[float]]:
    """The definition; `pixels(image, box)` are boxes in pixels, if these are compared."""
    counts = [0] * classes
    for row in truth:
        counts[int(row[1])] += difficult or not row[7]
    out: list[list[float]] = [[-1, c, counts[c], -1, -1] for c in range(1, classes)]
    rows = sorted(found.tolist(), key=lambda r: (r[0], r[1], -r[2]))
    taken: set[tuple[float, ...]] = set()
    for row in rows:
        best, winner = -1.0, None
        for other in truth.tolist():
            if other[:2] == row[:2]:
                a, b = row[3:7], other[3:7]
                if pixels:
                    a, b = (pixels(int(row[0]), box) for box in (a, b))
                overlap = share(a, b, 1.0 if pixels else 0.0)
                if overlap > best:
                    best, winner = overlap, other
        right, wrong = 0, 1
        if winner is not None and best >= 0.5:
            if winner[7] and not difficult:
                wrong = 0
            elif tuple(winner) not in taken:
                right, wrong = 1, 0
                taken.add(tuple(winner))
        out.append([*row[:3], right, wrong])
    return out


def scenes(seed: int) -> tuple[Any, Any]:
    """Objects of three images, and detections of which some lie near them."""
    rng = np.random.default_rng(seed)
    low = rng.uniform(0, 0.6, (14, 2))
    boxes = np.hstack((low, low + rng.uniform(0.1, 0.4, (14, 2))))
    ids = np.stack((rng.integers(0, 3, 14), rng.integers(1, 4, 14), np.zeros(14)), axis=1)
    truth = np.hstack((ids, boxes, rng.integers(0, 2, (14, 1)))).astype(np.float32)
    near = np.repeat(truth, 3, axis=0)
    moved = near[:, 3:7] + rng.normal(0, 0.05, (42, 4))
    scores = rng.permutation(42)[:, None] / 42
    found = np.hstack((near[:, :2], scores, moved)).astype(np.float32)
    found[::7, 1] = 1 + found[::7, 1] % 3  # of another class
    return found[np.lexsort((found[:, 1], found[:, 0]))], truth


@pytest.mark.parametrize("difficult", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_judgements(seed: int, difficult: bool) -> None:
    found, truth = scenes(seed)
    param = "num_classes: 4 background_label_id: 0 overlap_threshold: 0.5 "
    got = evaluate(found, truth, param + f"evaluate_difficult_gt: {str(difficult).lower()}")
    expected = np.array(judged(found, truth, 4, difficult), np.float32)
    assert np.array_equal(got[:3], expected[:3])
    order = [np.lexsort((-r[:, 2], r[:, 1], r[:, 0])) for r in (got[3:], expected[3:])]
    assert np.array_equal(got[3:][order[0]], expected[3:][order[1]])
    assert 2 <= expected[3:, 3].sum() < 20
    assert (expected[3:, 3:].sum(axis=1) == 0).any() == (not difficult)


@pytest.mark.parametrize("resize", ["", "resize_param { height: 10 width: 10 resize_mode: WARP }"])
def test_pixels_of_the_original_images(tmp_path: Path, resize: str) -> None:
    """Boxes are compared in pixels, whose width counts; images follow the list on any rank."""
    sizes = [(20, 30), (9, 7), (40, 12), (6, 6), (8, 15), (30, 30), (5, 9)]
    listed = tmp_path / "sizes.txt"
    listed.write_text("".join(f"image{i} {h} {w}\n" for i, (h, w) in enumerate(sizes)))
    found, truth = scenes(5)

    for step in (0, 1, 2):  # passes of three images each; the list begins again after seven

        def pixels(image: int, box: Any, step: int = step) -> Any:
            height, width = sizes[(3 * step + image) % 7]
            return [min(1, max(0, v)) * s for v, s in zip(box, (width, height) * 2, strict=True)]

        param = f'num_classes: 4 name_size_file: "{listed}" {resize}'
        got = evaluate(found, truth, param, step, images=3)
        expected = np.array(judged(found, truth, 4, True, pixels), np.float32)
        assert np.array_equal(got[3:, 3].sum(), expected[3:, 3].sum())
        order = [np.lexsort((-r[:, 2], r[:, 1], r[:, 0])) for r in (got[3:], expected[3:])]
        assert np.array_equal(got[3:][order[0]], expected[3:][order[1]])


def test_no_detections() -> None:
    nothing = np.full((1, 7), -1, np.float32)
    nothing[0, 0] = 0  # DetectionOutput's row for an image without detections
    truth = np.array([[0, 2, 0, 0.1, 0.1, 0.5, 0.5, 0]], np.float32)
    got = evaluate(nothing, truth, "num_classes: 3")
    assert got[:2].tolist() == [[-1, 1, 0, -1, -1], [-1, 2, 1, -1, -1]]
    assert got[2, 1] == -1  # of no class

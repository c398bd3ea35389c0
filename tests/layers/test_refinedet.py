"""DetectionOutput of RefineDet: two stages, against a definition that goes box by box."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest

from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.errors import FireError
from tests.convert.nets import exported, layer_net
from tests.layers.case import Array, Case, Trial
from tests.layers.test_detection import iou, some_boxes

PRIORS, CLASSES, IMAGES = 12, 3, 2


def moved(code: str, box: Array, variance: Array, by: Array) -> Array:
    """A box after one stage of regression."""
    width, height = box[2] - box[0], box[3] - box[1]
    x, y, right, bottom = variance * by
    if code == "CORNER":
        return box + np.array([x, y, right, bottom])
    if code == "CORNER_SIZE":
        return box + np.array([x * width, y * height, right * width, bottom * height])
    middle_x = (box[0] + box[2]) / 2 + x * width
    middle_y = (box[1] + box[3]) / 2 + y * height
    half_w, half_h = exp(right) * width / 2, exp(bottom) * height / 2
    return np.array([middle_x - half_w, middle_y - half_h, middle_x + half_w, middle_y + half_h])


def reference(
    code: str, shared: bool, score: float, bottoms: list[Array], keep: int
) -> list[list[float]]:
    loc, conf, prior = bottoms[:3]
    place, variance = prior[0].reshape(2, PRIORS, 4)
    conf = conf.reshape(IMAGES, PRIORS, CLASSES)
    loc = loc.reshape(IMAGES, PRIORS, -1, 4)
    rows = []
    for image in range(IMAGES):
        anchors = list(place)
        if len(bottoms) > 4:
            first = bottoms[4].reshape(IMAGES, PRIORS, 4)[image]
            anchors = [moved(code, place[p], variance[p], first[p]) for p in range(PRIORS)]
        found = []
        for label in range(1, CLASSES):
            scores = []
            for p in range(PRIORS):
                something = bottoms[3].reshape(IMAGES, PRIORS, 2)[image, p, 1]
                scores.append(float(conf[image, p, label]) if something >= score else 0.0)
            boxes = [
                moved(code, anchors[p], variance[p], loc[image, p, 0 if shared else label])
                for p in range(PRIORS)
            ]
            kept: list[int] = []
            for p in sorted(range(PRIORS), key=lambda p: -scores[p]):
                if scores[p] > 0.1 and all(iou(boxes[p], boxes[k]) <= 0.4 for k in kept):
                    kept.append(p)
            found += [[image, label, scores[p], *boxes[p]] for p in kept]
        best = sorted(found, key=lambda row: -row[2])[:keep]
        rows += sorted(best, key=lambda row: (row[1], -row[2]))
    return rows


def bottoms(code: str, shared: bool, stages: int) -> list[Array]:
    rng = np.random.default_rng(7)
    prior = np.stack([some_boxes(rng, PRIORS).reshape(-1), np.tile([0.1, 0.1, 0.2, 0.2], PRIORS)])
    made = [
        rng.normal(size=(IMAGES, PRIORS * 4 * (1 if shared else CLASSES))),
        rng.uniform(size=(IMAGES, PRIORS * CLASSES)),
        prior[None],
        rng.uniform(size=(IMAGES, PRIORS * 2)),
        rng.normal(size=(IMAGES, PRIORS * 4)),
    ]
    if code != "CENTER_SIZE":  # boxes that stay the right way out
        made[0], made[4] = 0.2 * made[0], 0.2 * made[4]
    return made[: 3 + stages]


def params(code: str, shared: bool, extra: str) -> str:
    return (
        f"detection_output_param {{ num_classes: {CLASSES} share_location: {str(shared).lower()} "
        f"code_type: {code} nms_param {{ nms_threshold: 0.4 }} confidence_threshold: 0.1 "
        f"keep_top_k: 8 {extra} }}"
    )


def detected(text: str, values: list[Array]) -> Array:
    shapes = tuple(v.shape for v in values)
    case = Case("detections", "DetectionOutput", text, shapes, gradients=())
    rows: Array = Trial(case, NumPyBackend(dtype=np.float64)).forward(values)[0][0, 0]
    return rows


@pytest.mark.parametrize("code", ["CORNER", "CENTER_SIZE", "CORNER_SIZE"])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("stages", [1, 2])
def test_two_stages_are_the_definition(code: str, shared: bool, stages: int) -> None:
    values = bottoms(code, shared, stages)
    got = detected(params(code, shared, "objectness_score: 0.5"), values)
    want = np.array(reference(code, shared, 0.5, values, 8))
    np.testing.assert_allclose(got, want, rtol=1e-6)
    everything = detected(params(code, shared, "objectness_score: 0"), values)
    assert not np.array_equal(everything, got), "some priors must be background"


def test_a_net_without_the_score_takes_a_hundredth() -> None:
    values = bottoms("CENTER_SIZE", True, 2)
    values[3][:, 1:9:2] = [0.009, 0.011, 0.009, 0.011]
    got = detected(params("CENTER_SIZE", True, ""), values)
    want = reference("CENTER_SIZE", True, 0.01, values, 8)
    np.testing.assert_allclose(got, np.array(want), rtol=1e-6)


def test_the_image_of_ssd_is_no_first_stage() -> None:
    values = bottoms("CENTER_SIZE", True, 1)
    text = params("CENTER_SIZE", True, "")
    image = np.zeros((IMAGES, 3, 8, 8))
    np.testing.assert_array_equal(detected(text, [*values[:3], image]), detected(text, values[:3]))


def test_opencv_s_form_of_onnx_has_one_stage() -> None:
    pytest.importorskip("onnx", reason="conversions to ONNX need the extra `convert`")
    shapes = tuple(v.shape for v in bottoms("CENTER_SIZE", True, 2))
    case = Case("two stages", "DetectionOutput", params("CENTER_SIZE", True, ""), shapes)
    with pytest.raises(FireError, match="use --detection nms for RefineDet"):
        exported(layer_net(case), detection="opencv")

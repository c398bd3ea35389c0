"""RegionLoss: YOLOv2's loss of boxes that grow out of anchors in each cell of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backend.blob import Blob
from ..backend.tensor import on_host
from .base import Loss, is_train, register_layer
from .checks import need_axes
from .sigmoid import sigmoid

Rows = np.ndarray[Any, Any]
SSD_ROW, YOLO_ROW = 8, 5
WARM_UP, WARM_UP_SCALE = 12800, 0.01  # so many images draw all boxes to their anchors, gently


@register_layer("RegionLoss")
class RegionLoss(Loss):
    """loss = sum of delta^2 / num, and delta / num is the gradient, as darknet and its forks do.

    Bottom 0 has num * (5 + num_class) channels: for each anchor x, y, w, h, the object's score,
    and a score per class. delta is the gradient of
    coord_scale ((x - tx)^2 + (y - ty)^2 + (w - tw)^2 + (h - th)^2) / 2 + object_scale (1 - o)^2 / 2
    + class_scale * cross entropy for the anchor of each object's cell that fits it best, and of
    noobject_scale o^2 / 2 for all others but those that overlap an object by more than `thresh`;
    x, y and o pass through a sigmoid, classes through a softmax. (The forks print the sum over
    the batch, which is num times this loss.)

    Bottom 1 holds the objects: rows of class, x, y, w, h (centres and sizes as shares of the
    image), of which the first with w = 0 ends an image's; or those of AnnotatedData.
    """

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.region_loss_param
        if param.coords != 4:
            self.fail(f"coords must be 4 (x, y, w, h), got {param.coords}")
        if not param.num or len(param.biases) != 2 * param.num or min(param.biases) <= 0:
            self.fail(
                f"needs a positive width and height in `biases` for each of num: {param.num} "
                f"anchors, got {[round(b, 4) for b in param.biases]}"
            )
        self._anchors = np.array(param.biases, np.float64).reshape(-1, 2)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param, (scores, objects) = self.param.region_loss_param, bottom
        top[0].reshape()
        need_axes(self, scores, 4, "num, channels, height, width")
        size = 5 + param.num_class
        if scores.shape[1] != param.num * size:
            self.fail(
                f"needs num x (5 + num_class) = {param.num * size} channels, but "
                f'"{scores.name}" has {scores.shape[1]}'
            )
        if param.HasField("side") and scores.shape[2:] != (param.side, param.side):
            self.fail(f'side is {param.side}, but "{scores.name}" is {list(scores.shape)}')
        self._from_ssd = objects.shape[:2] == (1, 1) and objects.shape[-1] == SSD_ROW
        per_image = objects.count // max(1, scores.num)
        if not self._from_ssd and (
            objects.shape[:1] != scores.shape[:1] or not per_image or per_image % YOLO_ROW
        ):
            self.fail(
                f'"{objects.name}" must have rows of class, x, y, w, h for each of the '
                f"{scores.num} images, or be 1 x 1 x count x 8, got {list(objects.shape)}"
            )

    def _objects(self, blob: Blob, images: int) -> list[Rows]:
        """For each image an array of rows class, x, y, w, h."""
        values = on_host(blob.data).astype(np.float64)
        if self._from_ssd:
            rows = values.reshape(-1, SSD_ROW)
            rows = rows[rows[:, 0] >= 0]
            low, high = rows[:, 3:5], rows[:, 5:7]
            boxes = np.concatenate([rows[:, 1:2] - 1, (low + high) / 2, high - low], axis=1)
            found = [boxes[rows[:, 0] == image] for image in range(images)]
        else:
            found = []
            for rows in values.reshape(images, -1, YOLO_ROW):
                ends = np.flatnonzero(rows[:, 3] == 0)
                found.append(rows[: ends[0]] if len(ends) else rows)
        for image, rows in enumerate(found):
            self._check(rows, image, blob)
        return found

    def _check(self, rows: Rows, image: int, blob: Blob) -> None:
        classes = self.param.region_loss_param.num_class
        fine = (rows[:, 0] >= 0) & (rows[:, 0] < classes) & (rows[:, 0] % 1 == 0)
        fine &= (rows[:, 1:3] >= 0).all(axis=1) & (rows[:, 1:3] < 1).all(axis=1)
        fine &= (rows[:, 3:] > 0).all(axis=1) & np.isfinite(rows).all(axis=1)
        if not fine.all():
            self.fail(
                f'an object of image {image} in "{blob.name}" makes no sense: '
                f"{rows[~fine][0].tolist()} (class of 0 to {classes - 1}, centre x and y from 0 "
                f"to 1, width, height)"
            )

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        xp, param, num = self.xp, self.param.region_loss_param, bottom[0].num
        x = bottom[0].data.reshape(num, param.num, -1, *bottom[0].shape[2:])
        objects = self._objects(bottom[1], num)
        place, score = sigmoid(xp, x[:, :, :2]), sigmoid(xp, x[:, :, 4])
        delta = xp.zeros_like(x)
        free = self._overlaps(place, x[:, :, 2:4], objects) <= param.thresh
        delta[:, :, 4] = xp.where(free, param.noobject_scale * score * score * (1 - score), 0)
        seen = self.context.step * self.context.leaves * num
        if is_train(self.phase) and seen < WARM_UP:
            delta[:, :, :2] = WARM_UP_SCALE * (place - 0.5) * place * (1 - place)
            delta[:, :, 2:4] = WARM_UP_SCALE * x[:, :, 2:4]
        chosen = self._choose(objects, x)
        if chosen:
            places = np.array(list(chosen)).T
            image, anchor, line, column = (xp.asarray(place) for place in places)
            at = (image, anchor, slice(None), line, column)
            targets, anchors = np.array(list(chosen.values())), self._anchors[places[1]]
            delta[at] = self._towards(targets, x[at], anchors)
        self._delta = delta.reshape(bottom[0].shape)
        top[0].data[...] = (delta * delta).sum() / max(1, num)

    def _overlaps(self, place: Any, stretch: Any, objects: list[Rows]) -> Any:
        """For every predicted box the largest intersection over union with an object."""
        xp, (height, width) = self.xp, place.shape[-2:]
        anchors = xp.asarray(self._anchors.astype(place.dtype)[:, :, None, None])
        sizes = xp.exp(stretch) * anchors
        boxes = xp.stack([
            (place[:, :, 0] + xp.arange(width)) / width,
            (place[:, :, 1] + xp.arange(height)[:, None]) / height,
            sizes[:, :, 0] / width, sizes[:, :, 1] / height,
        ])  # fmt: skip
        best = xp.zeros(boxes.shape[1:], boxes.dtype)
        for image, rows in enumerate(objects):
            for row in rows:
                best[image] = xp.maximum(best[image], _overlap(xp, boxes[:, image], row[1:]))
        return best

    def _choose(self, objects: list[Rows], x: Any) -> dict[tuple[int, int, int, int], Any]:
        """(image, anchor, line, column) to class, tx, ty, w, h in cells; later objects replace
        earlier ones."""
        match_sizes, (height, width) = self.param.region_loss_param.bias_match, x.shape[-2:]
        stretch = None if match_sizes else on_host(x)[:, :, 2:4].astype(np.float64)
        chosen = {}
        for image, rows in enumerate(objects):
            for row in rows:
                label, centre, size = row[0], row[1:3] * (width, height), row[3:] * (width, height)
                column, line = centre.astype(int)
                sizes = self._anchors
                if stretch is not None:
                    sizes = sizes * np.exp(stretch[image, :, :, line, column])
                boxes = np.concatenate([np.zeros_like(sizes), sizes], axis=1).T
                anchor = int(np.argmax(_overlap(np, boxes, (0, 0, *size))))
                place = (image, anchor, int(line), int(column))
                chosen[place] = (label, *(centre - (column, line)), *size)
        return chosen

    def _towards(self, targets: Rows, x: Any, anchors: Rows) -> Any:
        """The gradients of the chosen anchors' numbers, one row each."""
        xp, param = self.xp, self.param.region_loss_param
        place, score = sigmoid(xp, x[:, :2]), sigmoid(xp, x[:, 4:5])
        goal = xp.asarray(targets[:, 1:3].astype(x.dtype))
        stretch = xp.asarray(np.log(targets[:, 3:] / anchors).astype(x.dtype))
        own = targets[:, :1] == np.arange(param.num_class)
        return xp.concatenate([
            param.coord_scale * (place - goal) * place * (1 - place),
            param.coord_scale * (x[:, 2:4] - stretch),
            param.object_scale * (score - 1) * score * (1 - score),
            param.class_scale * (self.backend.softmax(x[:, 5:], 1) - xp.asarray(own)),
        ], axis=1)  # fmt: skip

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        self.check_propagation(propagate_down)
        if propagate_down[0]:
            bottom[0].diff[...] = self._delta * (top[0].diff / max(1, bottom[0].num))


def _overlap(xp: Any, boxes: Any, box: Any) -> Any:
    """Intersection over union of boxes (x, y, w, h along axis 0) with one box."""
    sides = [
        xp.minimum(boxes[i] + boxes[i + 2] / 2, box[i] + box[i + 2] / 2)
        - xp.maximum(boxes[i] - boxes[i + 2] / 2, box[i] - box[i + 2] / 2)
        for i in range(2)
    ]
    common = xp.maximum(sides[0], 0) * xp.maximum(sides[1], 0)
    return common / (boxes[2] * boxes[3] + box[2] * box[3] - common)

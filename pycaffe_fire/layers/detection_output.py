"""DetectionOutput: SSD's predictions as a list of detections."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backend.blob import Blob
from ..backend.tensor import on_host
from ..errors import DataError
from .base import Layer, register_layer
from .boxes import check_predictions, decode, need_per_prior, read_priors, suppress
from .checks import forbid_in_place
from .description import Storage
from .detection_files import DetectionFiles, missing

log = logging.getLogger("pycaffe_fire")
ROW = 7  # image, label, confidence, box


@register_layer("DetectionOutput")
class DetectionOutput(Layer):
    """top (1 x 1 x detections x 7): image, label, confidence, xmin, ymin, xmax, ymax.

    Bottoms: locations, confidences, priors (and perhaps images). Per class the boxes above
    confidence_threshold (the best top_k of them) go through non-maximum suppression, then the best
    keep_top_k of an image remain. Without any, each image has one row of -1. save_output_param
    asks for files of them (see detection_files.py); visualize does nothing here.

    RefineDet has two more bottoms, of its first stage: confidences of "nothing" and "something" at
    every prior, and perhaps locations. Priors whose "something" is below objectness_score are
    background; locations move the priors to where the second stage's begin. A fourth bottom is
    that of RefineDet if there is a fifth or if objectness_score is given, else it is images.
    """

    storage = Storage.FLOAT32
    family = "score"
    bottoms = (3, 5)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        forbid_in_place(self, bottom, top)
        param = self.param.detection_output_param
        if param.num_classes < 1:
            self.fail(f"num_classes must be at least 1, got {param.num_classes}")
        if param.nms_param.nms_threshold < 0:
            self.fail(f"nms_threshold must not be negative, got {param.nms_param.nms_threshold:g}")
        if not 0 < param.nms_param.eta <= 1:
            self.fail(f"eta must be above 0 and at most 1, got {param.nms_param.eta:g}")
        self._classes = int(param.num_classes)
        self._files = self._open_files(param) if param.HasField("save_output_param") else None
        self._locations = 1 if param.share_location else self._classes
        self._refines = len(bottom) > 4 or param.HasField("objectness_score")
        if self._refines and len(bottom) < 4:
            self.fail(
                "objectness_score needs the confidences of RefineDet's first stage as a fourth "
                "bottom; leave it out for SSD"
            )

    @property
    def repeatable(self) -> bool:
        return self._files is None

    def _open_files(self, param: Any) -> DetectionFiles | None:
        """What writes the results, if they are to be written."""
        given = param.save_output_param
        lacking = missing(given)
        absent = [
            path for path in (given.label_map_file, given.name_size_file)
            if path and not os.path.exists(path)
        ]  # fmt: skip
        if lacking or absent or self.context.leaves > 1:
            reason = f"save_output_param has no {' and no '.join(lacking)}"
            if not lacking:  # a net that came from another machine detects without its lists
                reason = f"there is no {' and no '.join(absent)}"
            if not lacking and not absent:
                reason = "the batch is cut into leaves"
            if given.output_directory:
                log.warning('layer "%s": writes no files, because %s', self.name, reason)
            return None
        try:
            return DetectionFiles(
                given, self._classes, param.background_label_id, self.context.output_folder
            )
        except DataError as error:
            self.fail(f"save_output_param: {error}; remove save_output_param to write no files")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._priors = check_predictions(self, bottom, self._locations, self._classes)
        if self._refines:
            need_per_prior(self, bottom[3:], (2, 4), self._priors, bottom[0].num)
        top[0].reshape(1, 1, 1, ROW)  # how many there are shows in forward

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        xp, param, num = self.xp, self.param.detection_output_param, bottom[0].num
        loc = bottom[0].data.reshape(num, self._priors, self._locations, 4)
        conf = bottom[1].data.reshape(num, self._priors, self._classes)
        priors, variances = read_priors(self, bottom[2], param.code_type)
        if param.variance_encoded_in_target:
            variances = xp.ones_like(variances)
        if self._refines:
            conf = self._only_objects(conf, bottom[3].data.reshape(num, self._priors, 2))
        rows = []
        for image in range(num):
            anchors = priors
            if len(bottom) > 4:
                moves = bottom[4].data[image].reshape(self._priors, 4)
                anchors = decode(xp, param.code_type, priors, variances, moves)
            boxes = decode(xp, param.code_type, anchors, variances, loc[image].transpose(1, 0, 2))
            if param.clip:
                boxes = xp.clip(boxes, 0, 1)
            rows += self._of_image(image, boxes, conf[image])
        if not sum(len(row) for row in rows):
            rows = [xp.asarray([[i] + [-1] * (ROW - 1)], conf.dtype) for i in range(num)]
        found = xp.concatenate(rows)
        top[0].reshape(1, 1, len(found), ROW)
        top[0].data[0, 0] = found
        if self._files is not None:
            found = on_host(found)
            found = found[found[:, 1] >= 0]
            self._findings = [found[found[:, 0] == image, 1:].tolist() for image in range(num)]
            if not self.context.collects:
                self.write([self._findings])

    def _only_objects(self, conf: Any, first: Any) -> Any:
        """Confidences without those of priors that the first stage takes for background."""
        param = self.param.detection_output_param
        nothing = self.xp.zeros(self._classes, conf.dtype)
        nothing[param.background_label_id : param.background_label_id + 1] = 1
        empty = first[..., 1:] < np.float32(param.objectness_score)
        return self.xp.where(empty, nothing, conf)

    def findings(self) -> list[list[list[float]]] | None:
        """For each image of the pass rows of label, confidence and box."""
        return None if self._files is None else self._findings

    def write(self, passes: Sequence[Any]) -> None:
        if self._files is None:  # the lists of names are on the hosts of other ranks alone
            return
        for image in (image for images in passes for image in images):
            try:
                self._files.add(image)
            except DataError as error:
                self.fail(str(error))

    def _of_image(self, image: int, boxes: Any, conf: Any) -> list[Any]:
        """The rows of one image, class by class."""
        xp, param = self.xp, self.param.detection_output_param
        rows = []
        for label in range(self._classes):
            if label == param.background_label_id:
                continue
            own = boxes[label % self._locations]
            picked = self._best(own, conf[:, label])
            if picked.size:
                row = xp.empty((picked.size, ROW), conf.dtype)
                row[:, 0], row[:, 1] = image, label
                row[:, 2], row[:, 3:] = conf[picked, label], own[picked]
                rows.append(row)
        count = sum(len(row) for row in rows)
        if not 0 <= param.keep_top_k < count:
            return rows
        found = xp.concatenate(rows)
        best = xp.argsort(-found[:, 2], kind="stable")[: param.keep_top_k]
        return [found[best][xp.argsort(found[best, 1], kind="stable")]]

    def _best(self, boxes: Any, scores: Any) -> Any:
        """Priors whose boxes survive for one class, best first."""
        xp, param = self.xp, self.param.detection_output_param
        if param.HasField("confidence_threshold"):
            chosen = xp.nonzero(scores > np.float32(param.confidence_threshold))[0]
        else:
            chosen = xp.arange(scores.size)
        chosen = chosen[xp.argsort(-scores[chosen], kind="stable")]
        if param.nms_param.HasField("top_k") and param.nms_param.top_k >= 0:
            chosen = chosen[: param.nms_param.top_k]
        kept = suppress(xp, boxes[chosen], param.nms_param.nms_threshold, param.nms_param.eta)
        return chosen[kept]

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if any(propagate_down):
            self.fail("detections have no gradient; stop it here with propagate_down: false")

    def allow_force_backward(self, bottom_index: int) -> bool:
        return False

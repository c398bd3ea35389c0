"""SSD's PriorBox and DetectionOutput, the latter for onnxruntime or for OpenCV."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import schema
from ...layers.boxes import CORNER, CORNER_SIZE
from ..dims import Dim, merged
from .graph import Graph, Tensor
from .registry import Part, converts

NMS, OPENCV = "nms", "opencv"  # kinds of detection
DETECTIONS = "detections"  # how many there are shows when the net runs


@converts("PriorBox")
def prior_box(graph: Graph, part: Part) -> str:
    """A constant: boxes depend on sizes alone."""
    part.layer.forward(part.bottom_blobs, part.top_blobs)
    return graph.weight(f"{part.layer.name}.boxes", np.array(part.top_blobs[0].data, np.float32))


@converts("DetectionOutput")
def detection_output(graph: Graph, part: Part) -> str:
    param = part.param.detection_output_param
    if part.detection == OPENCV:
        if _refines(part, param):
            part.fail("OpenCV's detections have one stage; use --detection nms for RefineDet")
        return _opencv(graph, part, param)
    if param.nms_param.eta < 1:
        part.fail("eta below 1 cannot be expressed in ONNX; use --detection opencv or set eta: 1")
    return _Detections(graph, part, param).rows()


def _refines(part: Part, param: Any) -> bool:
    """Are there bottoms of RefineDet's first stage?"""
    return len(part.bottoms) > 4 or param.HasField("objectness_score")


def _opencv(graph: Graph, part: Part, param: Any) -> str:
    """A node of a type that OpenCV knows by the name of Caffe's layer."""
    code = schema.PriorBoxParameter.CodeType.Name(param.code_type)
    nms = param.nms_param
    attributes: dict[str, Any] = {
        "num_classes": int(param.num_classes),
        "share_location": int(param.share_location),
        "background_label_id": int(param.background_label_id),
        "code_type": code,
        "variance_encoded_in_target": int(param.variance_encoded_in_target),
        "keep_top_k": int(param.keep_top_k),
        "nms_threshold": float(nms.nms_threshold),
        "top_k": int(nms.top_k) if nms.HasField("top_k") else -1,
        "eta": float(nms.eta),
    }
    if param.HasField("confidence_threshold"):
        attributes["confidence_threshold"] = float(param.confidence_threshold)
    return graph.op("DetectionOutput", *(x.name for x in part.bottoms[:3]), **attributes)


class _Detections:
    """Rows of image, label, confidence and box, ordered by image, label and confidence.

    Candidates are (image x class, place) pairs: the best top_k of each class, best first.
    """

    def __init__(self, graph: Graph, part: Part, param: Any) -> None:
        self.graph, self.param = graph, param
        loc, conf, priors = part.bottoms[:3]
        self.batch = loc.shape[0]
        self.conf = conf
        every = int(param.num_classes)
        self.labels = [c for c in range(every) if c != param.background_label_id]
        self.priors = int(merged(priors.shape)) // 8
        wanted = param.nms_param.top_k if param.nms_param.HasField("top_k") else -1
        self.best = min(wanted, self.priors) if wanted >= 0 else self.priors
        first = part.bottoms[3:] if _refines(part, param) else []
        boxes = self._boxes(loc, priors, first[1:])
        scores = self._scores(conf, every, first[:1])
        k = graph.integers([self.best])
        self.scores, places = graph.ops("TopK", [scores, k], 2, axis=2)
        self.boxes = self._picked(boxes, places)

    @property
    def _pairs(self) -> Dim:
        return merged((self.batch, Dim(len(self.labels))))

    def _boxes(self, loc: Tensor, priors: Tensor, moves: list[Tensor]) -> str:
        """Decoded boxes: images x priors x (1 or classes) x 4."""
        graph = self.graph
        every = 1 if self.param.share_location else int(self.param.num_classes)
        shape = (self.batch, Dim(self.priors), Dim(every), Dim(4))
        both = graph.reshape(priors.name, priors.shape, (Dim(2), Dim(self.priors), Dim(1), Dim(4)))
        boxes, variances = (
            graph.reshape(
                half, (Dim(1), *shape[1:2], Dim(1), Dim(4)), (*shape[1:2], Dim(1), Dim(4))
            )
            for half in graph.ops("Split", [both, graph.integers([1, 1])], 2, axis=0)
        )
        for move in moves:  # of the first stage
            codes = graph.reshape(move.name, move.shape, (*shape[:2], Dim(1), Dim(4)))
            boxes = self._decoded(codes, boxes, variances)
        codes = graph.reshape(loc.name, loc.shape, shape)
        return self._decoded(codes, boxes, variances)

    def _decoded(self, codes: str, boxes: str, variances: str) -> str:
        graph, param = self.graph, self.param
        if not param.variance_encoded_in_target:
            codes = graph.op("Mul", codes, variances)
        if param.code_type == CORNER:
            return graph.op("Add", boxes, codes)
        low, high = graph.ops("Split", [boxes, graph.integers([2, 2])], 2, axis=-1)
        size = graph.op("Sub", high, low)
        if param.code_type == CORNER_SIZE:
            sizes = graph.op("Concat", size, size, axis=-1)
            return graph.op("Add", boxes, graph.op("Mul", codes, sizes))
        middle = graph.scaled(graph.op("Add", low, high), 0.5)
        shift, growth = graph.ops("Split", [codes, graph.integers([2, 2])], 2, axis=-1)
        centre = graph.op("Add", middle, graph.op("Mul", shift, size))
        half = graph.scaled(graph.op("Mul", graph.op("Exp", growth), size), 0.5)
        ends = (graph.op(sign, centre, half) for sign in ("Sub", "Add"))
        return graph.op("Concat", *ends, axis=-1)

    def _scores(self, conf: Tensor, every: int, first: list[Tensor]) -> str:
        """images x classes (without the background) x priors."""
        graph = self.graph
        shape = (self.batch, Dim(self.priors), Dim(every))
        scores = graph.reshape(conf.name, conf.shape, shape)
        for stage in first:  # what it takes for background is no object
            pairs = graph.reshape(stage.name, stage.shape, (*shape[:2], Dim(2)))
            something = graph.op("Gather", pairs, graph.integers([1]), axis=2)
            least = graph.constant(np.array(self.param.objectness_score, np.float32))
            zero = graph.constant(np.zeros(1, np.float32))
            scores = graph.op("Where", graph.op("Less", something, least), zero, scores)
        scores = graph.op("Transpose", scores, perm=[0, 2, 1])
        return graph.op("Gather", scores, graph.integers(self.labels), axis=1)

    def _picked(self, boxes: str, places: str) -> str:
        """The candidates' boxes: images x classes x best x 4."""
        graph, classes = self.graph, len(self.labels)
        turned = graph.op("Transpose", boxes, perm=[0, 2, 1, 3])
        if not self.param.share_location:
            turned = graph.op("Gather", turned, graph.integers(self.labels), axis=1)
        else:
            one = graph.integers([1, classes, 1, 1])
            turned = graph.op("Expand", turned, one)
        index = graph.op("Unsqueeze", places, graph.integers([3]))
        return graph.op("GatherND", turned, index, batch_dims=2)

    def rows(self) -> str:
        graph, best = self.graph, Dim(self.best)
        grid = (self.batch, Dim(len(self.labels)), best)
        flat = (self._pairs, best)
        boxes = graph.reshape(self.boxes, (*grid, Dim(4)), (*flat, Dim(4)))
        scores = graph.reshape(self.scores, grid, (self._pairs, Dim(1), best))
        chosen = self._suppressed(boxes, scores)
        pair, place = (
            graph.op("Gather", chosen, graph.constant(column, np.int64), axis=1)
            for column in (0, 2)
        )
        index = graph.op(
            "Add", graph.op("Mul", pair, graph.constant(self.best, np.int64)), place
        )  # fmt: skip
        all_scores = graph.op("Reshape", self.scores, graph.integers([-1]))
        all_boxes = graph.op("Reshape", self.boxes, graph.integers([-1, 4]))
        classes = graph.constant(len(self.labels), np.int64)
        image = graph.op("Div", pair, classes)
        label = graph.op(
            "Gather", graph.constant(self.labels), graph.op("Mod", pair, classes), axis=0
        )
        score = graph.op("Gather", all_scores, index, axis=0)
        columns = [self._column(v) for v in (graph.cast(image, np.float32), label, score)]
        found = graph.op(
            "Concat", *columns, graph.op("Gather", all_boxes, index, axis=0), axis=1
        )  # fmt: skip
        if self.param.keep_top_k >= 0:
            found = graph.rows_where(found, self._among_best(index, score))
        found = graph.op("Concat", found, self._nothing(found), axis=0)
        return graph.op("Unsqueeze", found, graph.integers([0, 1]))

    def _suppressed(self, boxes: str, scores: str) -> str:
        """Rows of pair, 0 and place that non-maximum suppression keeps."""
        graph, param = self.graph, self.param
        limits = [
            graph.constant(self.best, np.int64),
            graph.constant(param.nms_param.nms_threshold),
        ]
        if param.HasField("confidence_threshold"):
            limits.append(graph.constant(param.confidence_threshold))
        return graph.op("NonMaxSuppression", boxes, scores, *limits)

    def _column(self, values: str) -> str:
        return self.graph.op("Unsqueeze", values, self.graph.integers([1]))

    def _among_best(self, index: str, score: str) -> str:
        """Which of the found are among the best keep_top_k of their image?"""
        graph = self.graph
        each = len(self.labels) * self.best
        lowest = graph.constant(np.finfo(np.float32).min)
        everywhere = graph.op("Reshape", self.scores, graph.integers([-1]))
        blank = graph.op("Expand", lowest, graph.op("Shape", everywhere))
        dense = graph.op("ScatterElements", blank, index, score, axis=0)
        dense = graph.op("Reshape", dense, graph.integers([-1, each]))
        count = graph.integers([min(self.param.keep_top_k, each)])
        _, places = graph.ops("TopK", [dense, count], 2, axis=1)
        none = graph.op("Mul", graph.op("Cast", dense, to=7), graph.constant(0, np.int64))
        ones = graph.op("Expand", graph.constant(1, np.int64), graph.op("Shape", places))
        marks = graph.op("ScatterElements", none, places, ones, axis=1)
        marks = graph.op("Reshape", marks, graph.integers([-1]))
        return graph.cast(graph.op("Gather", marks, index, axis=0), np.bool_)

    def _nothing(self, found: str) -> str:
        """A row of -1 for each image if there are no rows at all."""
        graph = self.graph
        count = graph.op("Gather", graph.op("Shape", found), graph.integers([0]), axis=0)
        empty = graph.op("Equal", count, graph.integers([0]))
        batch = graph.op(
            "Gather", graph.op("Shape", self.scores), graph.integers([0]), axis=0
        )  # fmt: skip
        scalar = graph.op("Squeeze", batch, graph.integers([0]))
        zero, one = graph.constant(0, np.int64), graph.constant(1, np.int64)
        images = graph.cast(graph.op("Range", zero, scalar, one), np.float32)
        rest = graph.op(
            "Expand", graph.constant([[-1.0] * 6]),
            graph.op("Concat", batch, graph.integers([6]), axis=0),
        )  # fmt: skip
        rows = graph.op("Concat", self._column(images), rest, axis=1)
        wanted = graph.op("Expand", empty, batch)
        return graph.rows_where(rows, wanted)

"""Python layers in the manner of py-faster-rcnn and FCN: str(self.phase), tops reshaped late."""

from __future__ import annotations

from typing import Any

import numpy as np

import pycaffe_fire as caffe

CONFIG = {"TRAIN": {"BATCH": 16}, "TEST": {"BATCH": 4}}


class AnchorTargetLayer(caffe.Layer):
    """Labels and targets of anchors; here each place learns by whether a box's centre is near."""

    def setup(self, bottom: Any, top: Any) -> None:
        layer_params = eval("{" + self.param_str_ + "}")
        self._feat_stride = layer_params["feat_stride"]
        self._num_anchors = 9
        height, width = bottom[0].data.shape[-2:]
        A = self._num_anchors
        top[0].reshape(1, 1, A * height, width)
        for blob in top[1:]:
            blob.reshape(1, A * 4, height, width)

    def forward(self, bottom: Any, top: Any) -> None:
        assert bottom[0].data.shape[0] == 1, "Only single item batches are supported"
        height, width = bottom[0].data.shape[-2:]
        A = self._num_anchors
        gt_boxes, im_info = bottom[1].data, bottom[2].data[0, :]
        labels = np.zeros((1, A, height, width), np.float32)
        for box in gt_boxes:
            x, y = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
            assert x < im_info[1] and y < im_info[0]
            labels[0, :, int(y / self._feat_stride), int(x / self._feat_stride)] = 1
        labels[0, ::3][labels[0, ::3] == 0] = -1
        positive = np.repeat((labels == 1).astype(np.float32), 4, axis=1)
        blobs = (labels.reshape((1, 1, A * height, width)), 0.1 * positive, positive,
                 positive / max(1, positive.sum()))  # fmt: skip
        for blob, values in zip(top, blobs, strict=True):
            blob.reshape(*(values.shape))
            blob.data[...] = values

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        """This layer does not propagate gradients."""
        pass

    def reshape(self, bottom: Any, top: Any) -> None:
        """Reshaping happens during the call to forward."""
        pass


class ProposalTargetLayer(caffe.Layer):
    """A sample of the proposals with their labels and targets."""

    def setup(self, bottom: Any, top: Any) -> None:
        self._num_classes = eval("{" + self.param_str + "}")["num_classes"]
        top[0].reshape(1, 5)
        top[1].reshape(1, 1)
        for blob in top[2:]:
            blob.reshape(1, self._num_classes * 4)

    def forward(self, bottom: Any, top: Any) -> None:
        cfg_key = str(self.phase)  # either 'TRAIN' or 'TEST'
        all_rois, gt_boxes = bottom[0].data, bottom[1].data
        zeros = np.zeros((gt_boxes.shape[0], 1), dtype=gt_boxes.dtype)
        all_rois = np.vstack((np.hstack((zeros, gt_boxes[:, :-1])), all_rois))
        rois = all_rois[: CONFIG[cfg_key]["BATCH"]]
        labels = np.zeros(len(rois), np.float32)
        labels[: len(gt_boxes)] = gt_boxes[:, 4]
        inside = np.zeros((len(rois), 4 * self._num_classes), np.float32)
        for ind in np.where(labels > 0)[0]:
            start = int(4 * labels[ind])
            inside[ind, start : start + 4] = 1
        found: list[Any] = [rois, labels, 0.2 * inside, inside, inside > 0]
        for blob, values in zip(top, found, strict=True):
            blob.reshape(*values.shape)
            blob.data[...] = values

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        pass

    def reshape(self, bottom: Any, top: Any) -> None:
        pass


class VOCSegDataLayer(caffe.Layer):
    """As FCN's voc_layers: one image and its labels at a time, each of its own size."""

    def setup(self, bottom: Any, top: Any) -> None:
        params = eval(self.param_str)
        self.sizes = params["sizes"]
        self.random = params.get("randomize", False)
        if len(top) != 2:
            raise Exception("Need to define two tops: data and label.")
        if len(bottom) != 0:
            raise Exception("Do not define a bottom.")
        self.idx = 0

    def reshape(self, bottom: Any, top: Any) -> None:
        height, width = self.sizes[self.idx]
        self.data = np.full((3, height, width), self.idx, np.float32)
        self.label = np.ones((1, height, width), np.uint8)
        top[0].reshape(1, *self.data.shape)
        top[1].reshape(1, *self.label.shape)

    def forward(self, bottom: Any, top: Any) -> None:
        top[0].data[...] = self.data
        top[1].data[...] = self.label
        self.idx = (self.idx + 1) % len(self.sizes)

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        pass

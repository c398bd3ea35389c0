"""SoftmaxWithLoss of (samples, classes): one kernel each way, which also looks at the labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..blob import Blob
from ..plans import LabelLoss, LossPlan
from ..tensor import FLOAT32, Array
from .tensor import source, target

if TYPE_CHECKING:
    from . import CudaBackend

TROUBLE = 3  # numbers: whether there is any, in which sample, and the label


class SoftmaxLoss(LossPlan):
    """A wrong label is found on the device; the backend looks for it when numbers are read."""

    @staticmethod
    def supports(x: Blob, case: LabelLoss) -> bool:
        return bool(x.count) and case.labels.count == x.shape[0]

    def __init__(self, backend: CudaBackend, x: Blob, loss: Blob, case: LabelLoss) -> None:
        self.backend, self.x, self.loss, self.case = backend, x, loss, case
        self._samples, self._classes = x.shape[0], x.count // x.shape[0]
        self._prob = backend.keep(x.count)
        self._losses = backend.keep(self._samples)
        self._normalizer = backend.keep(1)
        self._trouble = backend.xp.zeros(TROUBLE, np.float32)
        backend.watch(self)

    @property
    def prob(self) -> Array:
        return self._prob().reshape(self.x.shape)

    def forward(self) -> None:
        case, self.backend.unwatched = self.case, True
        self.backend.kernels["softmax_loss"].blocks(
            self._samples, source(self.x.value, FLOAT32), source(case.labels.value, FLOAT32),
            self._classes, *self._labels(), case.weights, case.normalizer or 0.0, self._prob(),
            self._losses(), self.backend.arrivals, self._normalizer(), self._trouble,
            target(self.loss.value),
        )  # fmt: skip

    def backward(self) -> None:
        kind, dx = self.x.gradient.kind, target(self.x.gradient)
        labels = source(self.case.labels.value, FLOAT32)
        self.backend.kernels["softmax_loss_backward", kind](
            dx.size, self._prob(), labels, source(self.loss.gradient), self._normalizer(),
            self._classes, *self._labels(), self.case.weights, dx,
        )  # fmt: skip

    def _labels(self) -> tuple[int, float, float]:
        ignore = self.case.ignore
        return int(ignore is not None), float(ignore or 0), self.case.smoothing

    def confirm(self) -> None:
        """Raise the error of the first wrong label since the last look, if there was one."""
        wrong, sample, label = self._trouble.get().tolist()
        if wrong:
            self._trouble[...] = 0
            self.case.refuse(label, int(sample))

"""What layers with class labels share: reading them, ignoring some, and normalising a loss."""

from __future__ import annotations

from math import isfinite, prod
from typing import Any, NoReturn

import numpy as np

from ..backend.blob import Blob
from .base import Layer
from .indices import NOT_AN_INDEX, number_text, truncated

FULL, VALID, BATCH_SIZE, NONE, PRE_FIXED = 0, 1, 2, 3, 20001
LOG_THRESHOLD = 1e-20  # probabilities below it count as this much


class Labels:
    """Integer labels of a (outer, classes, inner) score array. A layer keeps them as `labels`."""

    def __init__(
        self, layer: Layer, scores: Blob, labels: Blob, axis: int, flat: bool = False,
        ignore: int | None = None,
    ) -> None:  # fmt: skip
        """`flat`: everything from `axis` on counts as classes (the older losses read it so);
        `ignore` is a label that does not count."""
        shape = (*scores.shape[:axis], prod(scores.shape[axis:])) if flat else scores.shape
        if len(shape) <= axis:
            layer.fail(f'scores "{scores.name}" {list(shape)} have no axis {axis} for classes')
        self.classes = shape[axis]
        self.outer, self.inner = prod(shape[:axis]), prod(shape[axis + 1 :])
        self._layer, self.blob, self.ignore = layer, labels, ignore
        if labels.count != self.outer * self.inner:
            layer.fail(
                f'needs one label per prediction: scores "{scores.name}" {list(shape)} with '
                f'classes on axis {axis} want {self.outer * self.inner}, blob "{labels.name}" '
                f"{list(labels.shape)} has {labels.count}"
            )

    def read(self) -> tuple[Any, Any]:
        """(labels, valid) of shape (outer, inner); ignored ones are read as class 0, not valid."""
        xp = self._layer.xp
        given = self.blob.data.reshape(self.outer, self.inner)
        require = self._layer.backend.require
        require(xp.isfinite(given).all(), self._refuse_nan)
        labels = truncated(xp, given)
        require((given == xp.trunc(given)).all(), lambda: self._refuse_fraction(given))
        valid = xp.ones(labels.shape, bool) if self.ignore is None else labels != self.ignore
        bad = valid & ((labels < 0) | (labels >= self.classes))
        require(~bad.any(), lambda: self._refuse(given, bad))
        return xp.where(valid & ~bad, labels, 0), valid

    @staticmethod
    def _remedy(label: int) -> str:
        if label == NOT_AN_INDEX:
            return "correct it"
        if label < 0:
            return "correct it, or name it as ignore_label"
        return (
            f"num_output of the layer that makes the scores must be at least {label + 1}, or the "
            f"label is wrong"
        )

    def _refuse_nan(self) -> NoReturn:
        self._layer.fail(f'blob "{self.blob.name}" holds labels that are not numbers')

    def _refuse_fraction(self, given: Any) -> NoReturn:
        wrong = given[given != self._layer.xp.trunc(given)]
        self.refuse(float(wrong[0]))

    def _refuse(self, given: Any, bad: Any) -> NoReturn:
        outer, inner = (int(i[0]) for i in self._layer.xp.nonzero(bad))
        self.refuse(float(given[outer, inner]), outer, inner)

    def refuse(self, wrong: float, outer: int = 0, inner: int = 0) -> NoReturn:
        """Say what is wrong with a label."""
        if not isfinite(wrong):
            self._refuse_nan()
        if wrong % 1:
            self._layer.fail(
                f'blob "{self.blob.name}" holds the label {wrong:g}; labels are whole numbers'
            )
        place = f", position {inner}" if self.inner > 1 else ""
        remedy = self._remedy(int(truncated(np, np.asarray(wrong))))
        self._layer.fail(
            f"label {number_text(wrong)} of sample {outer}{place} in blob "
            f'"{self.blob.name}" is not a class: there are {self.classes} (0 to '
            f"{self.classes - 1}); {remedy} (fire_data check "
            f"DATABASE --classes {self.classes} lists such records)"
        )


def normalization_mode(loss_param: Any, default: int | None = None) -> int:
    """The mode, also from the old `normalize` flag; `default` where a layer has its own."""
    if loss_param.HasField("normalization"):
        return int(loss_param.normalization)
    if loss_param.HasField("normalize"):
        return VALID if loss_param.normalize else BATCH_SIZE
    return int(loss_param.normalization) if default is None else default


def normalizer(mode: int, outer: int, inner: int, valid: Any, fixed: float = 1.0) -> Any:
    """What a summed loss is divided by; never less than 1, so an all-ignored batch is no error.

    `fixed` is loss_param's pre_fixed_normalizer (Intel Caffe). Without `valid`, None stands for it.
    """
    counts = {FULL: outer * inner, VALID: valid, BATCH_SIZE: outer, NONE: 1, PRE_FIXED: fixed}
    count = counts[mode]
    if count is None:
        return None
    if isinstance(count, (int, float, np.number)):
        return float(max(1, count))
    return count.clip(1, None).astype(np.float32)  # on a device, where nobody waits for it


def ignore_label(param: Any) -> int | None:
    return int(param.ignore_label) if param.HasField("ignore_label") else None

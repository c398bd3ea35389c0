"""WarpCTC, CTCLoss, WarpCTCLoss and CtcLoss: connectionist temporal classification (CRNN).

Four names of one loss, which read their labels as the forks that they come from do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backend.blob import Blob
from ..backend.tensor import on_host
from .alignments import Sequences, align
from .base import Layer, Loss, register_layer
from .indices import number_text, truncated


def check_scores(layer: Layer, scores: Blob) -> tuple[int, int, int]:
    """Moments, samples and classes of time-major scores, which may have an axis of 1 after."""
    shape = scores.shape
    if len(shape) < 3 or any(size != 1 for size in shape[3:]):
        layer.fail(f'needs scores of time x batch x classes, got "{scores.name}" {list(shape)}')
    return shape[0], shape[1], shape[2]


def running(blob: Blob, times: int, num: int) -> NDArray[np.int64]:
    """How long each sequence is, by indicators (time x batch) that are 0 where one begins."""
    starts = on_host(blob.data).reshape(times, num) == 0
    starts[0] = False  # where all begin
    return np.where(starts.any(axis=0), starts.argmax(axis=0), times).astype(np.int64)


class Alignment(Loss):
    """loss = -log of the summed probability of all alignments with the labels / batch.

    Scores (time x batch x classes) pass through a softmax. A sample whose labels do not fit into
    its time counts as 0 and has no gradient. With two bottoms, the second holds the labels as
    batch x labels, where blanks and negative numbers fill up.
    """

    bottoms = (2, 2)

    def blank(self, classes: int) -> int:
        raise NotImplementedError

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        times, num, classes = check_scores(self, bottom[0])
        top[0].reshape()
        self._blank = self.blank(classes)
        if not 0 <= self._blank < classes:
            self.fail(f"the blank label {self._blank} is not one of the {classes} classes")
        self.check_labels(bottom, times, num)

    def check_labels(self, bottom: Sequence[Blob], times: int, num: int) -> None:
        if bottom[1].shape[:1] != (num,):
            self.fail(
                f'needs labels of batch x labels with a batch of {num}, got "{bottom[1].name}" '
                f"{list(bottom[1].shape)}"
            )

    def read(self, bottom: Sequence[Blob]) -> Sequences:
        times, num = bottom[0].shape[:2]
        given = on_host(bottom[1].data).reshape(num, -1)
        labels, counts = np.full(given.shape, self._blank), np.zeros(num, np.int64)
        for sample, row in enumerate(given):
            kept = row[(row != self._blank) & ~(row < 0)]
            counts[sample] = len(kept)
            labels[sample, : len(kept)] = self.whole(kept, bottom[0].shape[2], sample, bottom[1])
        return Sequences(labels, counts, np.full(num, times))

    def whole(
        self, labels: NDArray[Any], classes: int, sample: int, blob: Blob
    ) -> NDArray[np.int64]:
        """Labels as integers, or the named error."""
        wrong = ~((labels >= 0) & (labels < classes) & (labels % 1 == 0)) | (labels == self._blank)
        if wrong.any():
            self.fail(
                f"label {labels[wrong][0]:g} of sample {sample} in blob "
                f'"{blob.name}" is not a class: there are {classes} (0 to {classes - 1}), of which '
                f"{self._blank} is the blank"
            )
        return labels.astype(np.int64)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        xp, shape = self.xp, bottom[0].shape[:3]
        scores = bottom[0].data.reshape(shape).astype(np.float64)
        scores = scores - scores.max(axis=2, keepdims=True)
        log_probs = scores - xp.log(xp.exp(scores).sum(axis=2, keepdims=True))
        batch = self.read(bottom)
        costs, expected = align(xp, log_probs, batch, self._blank)
        fits = ~(costs == np.inf)
        lives = np.arange(shape[0])[:, None] < batch.lengths
        counts = (xp.asarray(lives) & fits)[:, :, None]
        self._gradient = xp.where(counts, xp.exp(log_probs) - expected, 0)
        top[0].data[...] = xp.where(fits, costs, 0).sum() / max(1, shape[1])

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if any(propagate_down[1:]):
            self.fail("cannot backpropagate to lengths and labels (bottoms from 1 on)")
        if propagate_down[0]:
            gradient = self._gradient * (top[0].diff / max(1, bottom[0].shape[1]))
            bottom[0].diff[...] = gradient.reshape(bottom[0].shape)

    def allow_force_backward(self, bottom_index: int) -> bool:
        return bottom_index == 0


@register_layer("WarpCTC")
class WarpCTC(Alignment):
    """Scores and labels (batch x labels); blank_label is the blank."""

    def blank(self, classes: int) -> int:
        return int(self.param.warp_ctc_param.blank_label)


@register_layer("CTCLoss", "WarpCTCLoss", "CtcLoss")
class CTCLoss(Alignment):
    """blank_index is the blank (-1: the last class); for CtcLoss it is blank_label.

    Three bottoms are scores, indicators (time x batch; 0 where a sequence begins) and labels
    (labels x batch; the first negative one ends a sample's); four are scores, lengths in time,
    counts of labels, and labels (labels x batch).
    """

    param_field = "ctc_loss_param"
    bottoms = (2, 4)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().setup(bottom, top)
        param, (times, _, classes) = self.param.ctc_loss_param, check_scores(self, bottom[0])
        for field, real in (("alphabet_size", classes), ("time_step", times)):
            given = getattr(param, field)
            if given and given != real:
                self.fail(f'{field} is {given}, but "{bottom[0].name}" has {real}')

    def blank(self, classes: int) -> int:
        param = self.param.ctc_loss_param
        if self.type == "CtcLoss":
            return int(param.blank_label)
        return classes - 1 if param.blank_index == -1 else int(param.blank_index)

    def check_labels(self, bottom: Sequence[Blob], times: int, num: int) -> None:
        if len(bottom) == 2:
            super().check_labels(bottom, times, num)
            return
        wanted = {1: times * num} if len(bottom) == 3 else {1: num, 2: num}
        for place, count in wanted.items():
            if bottom[place].count != count:
                what = "an indicator per moment" if len(bottom) == 3 else "a length per sample"
                self.fail(
                    f'needs {what} ({count}), got "{bottom[place].name}" '
                    f"{list(bottom[place].shape)}"
                )
        if bottom[-1].shape[1:2] != (num,):
            self.fail(
                f'needs labels of labels x batch with a batch of {num}, got "{bottom[-1].name}" '
                f"{list(bottom[-1].shape)}"
            )

    def read(self, bottom: Sequence[Blob]) -> Sequences:
        if len(bottom) == 2:
            return self._collapsed(super().read(bottom))
        times, num, classes = bottom[0].shape[:3]
        given = on_host(bottom[-1].data).reshape(-1, num).T
        if len(bottom) == 3:
            lengths = running(bottom[1], times, num)
            ended = given < 0
            counts = np.where(ended.any(axis=1), ended.argmax(axis=1), given.shape[1])
        else:
            lengths = self._lengths(bottom[1], times)
            counts = self._lengths(bottom[2], given.shape[1])
        labels = np.full(given.shape, self._blank)
        for sample, count in enumerate(counts):
            row = self.whole(given[sample, :count], classes, sample, bottom[-1])
            labels[sample, :count] = row
        return self._collapsed(Sequences(labels, counts, lengths))

    def _lengths(self, blob: Blob, most: int) -> NDArray[np.int64]:
        given = on_host(blob.data).reshape(-1)
        lengths: NDArray[np.int64] = truncated(np, given)
        wrong = (lengths < 0) | (lengths > most)
        if wrong.any():
            at = int(wrong.argmax())
            self.fail(
                f'"{blob.name}" must hold lengths from 0 to {most}, got {number_text(given[at])} '
                f"for sample {at}"
            )
        return lengths

    def _collapsed(self, batch: Sequences) -> Sequences:
        """Without labels that repeat the one before, if preprocess_collapse_repeated says so."""
        if not self.param.ctc_loss_param.preprocess_collapse_repeated:
            return batch
        labels, counts = batch.labels.copy(), batch.counts.copy()
        for sample, count in enumerate(batch.counts):
            row = batch.labels[sample, :count]
            kept = row[np.append(True, row[1:] != row[:-1])[:count]]
            labels[sample, : len(kept)], counts[sample] = kept, len(kept)
        return Sequences(labels, counts, batch.lengths)

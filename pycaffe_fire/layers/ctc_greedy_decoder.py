"""CTCGreedyDecoder: the likeliest class of each moment, without repetitions and blanks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backend.blob import Blob
from ..backend.tensor import on_host
from .base import Layer, register_layer
from .ctc_loss import check_scores, running
from .description import Storage

NOTHING = -1


@register_layer("CTCGreedyDecoder")
class CTCGreedyDecoder(Layer):
    """top 0 (time x batch) = the labels that are read, one after the other, then -1.

    Bottoms: scores (time x batch x classes), and if there are, indicators (time x batch; 0 where
    a sequence begins) and labels (labels x batch; the first negative one ends a sample's). Top 1
    then is the accuracy: 1 - the mean of edit distance / length of the longer one.
    """

    storage = Storage.FLOAT32
    stops_gradients = True
    family = "score"
    param_field = "ctc_decoder_param"
    bottoms = (1, 3)
    tops = (1, 2)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        times, num, classes = check_scores(self, bottom[0])
        blank = self.param.ctc_decoder_param.blank_index
        self._blank = classes - 1 if blank == -1 else int(blank)
        if not 0 <= self._blank < classes:
            self.fail(f"the blank label {blank} is not one of the {classes} classes")
        if len(bottom) > 1 and bottom[1].count != times * num:
            self.fail(
                f'needs an indicator per moment ({times * num}), got "{bottom[1].name}" '
                f"{list(bottom[1].shape)}"
            )
        if len(bottom) > 2 and bottom[2].shape[1:2] != (num,):
            self.fail(
                f'needs labels of labels x batch with a batch of {num}, got "{bottom[2].name}" '
                f"{list(bottom[2].shape)}"
            )
        if len(top) > 1 and len(bottom) < 3:
            self.fail("a second top, the accuracy, needs labels as a third bottom")
        top[0].reshape(times, num)
        if len(top) > 1:
            top[1].reshape()

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        xp, (times, num) = self.xp, bottom[0].shape[:2]
        best = on_host(bottom[0].data.reshape(times, num, -1).argmax(axis=2))
        said = best != self._blank
        if self.param.ctc_decoder_param.ctc_merge_repeated:
            said[1:] &= best[1:] != best[:-1]
        if len(bottom) > 1:
            said &= np.arange(times)[:, None] < running(bottom[1], times, num)
        read = np.full((times, num), NOTHING)
        moment, sample = np.nonzero(said)
        read[said.cumsum(axis=0)[moment, sample] - 1, sample] = best[moment, sample]
        top[0].data[...] = xp.asarray(read)
        if len(top) > 1:
            labels = on_host(bottom[2].data).reshape(-1, num)
            errors = [_error(*both) for both in zip(read.T, labels.T, strict=True)]
            top[1].data[...] = 1 - float(np.mean(errors))

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        """What is read has no gradient."""

    def allow_force_backward(self, bottom_index: int) -> bool:
        return False


def _error(read: NDArray[Any], labels: NDArray[Any]) -> float:
    """Edit distance of two sequences, each ended by its first negative number, over the length of
    the longer one."""
    read, labels = (seq[: int(np.append(seq < 0, True).argmax())] for seq in (read, labels))
    row = list(range(len(labels) + 1))
    for i, one in enumerate(read):
        corner, row[0] = row[0], i + 1
        for j, other in enumerate(labels):
            corner, row[j + 1] = (
                row[j + 1],
                min(row[j] + 1, row[j + 1] + 1, corner + int(one != other)),
            )
    return row[-1] / max(len(read), len(labels), 1)

"""Filter: only the samples that a selector picks."""

from __future__ import annotations

from collections.abc import Sequence

from ..backend.blob import Blob
from .base import Layer, register_layer
from .checks import forbid_in_place
from .description import Storage


@register_layer("Filter")
class Filter(Layer):
    """Top i holds the samples of bottom i where the last bottom, the selector, is not 0.

    How many that are is known only in forward, so the tops change their shape there.
    """

    storage = Storage.FLOAT32
    bottoms = (2, None)
    tops = (1, None)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if len(top) != len(bottom) - 1:
            self.fail(
                f"expects one top per bottom but the selector ({len(bottom) - 1}), got {len(top)}"
            )
        forbid_in_place(self, bottom, top)
        self._selector = len(bottom) - 1

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        *inputs, selector = bottom
        if selector.shape[1:] != (1,) * len(selector.shape[1:]) or not selector.shape:
            self.fail(
                f'the selector "{selector.name}" must have one number per sample, got shape '
                f"{list(selector.shape)}"
            )
        for x, y in zip(inputs, top, strict=True):
            if x.shape[:1] != selector.shape[:1]:
                self.fail(
                    f'"{x.name}" {list(x.shape)} and the selector "{selector.name}" '
                    f"{list(selector.shape)} must have as many samples"
                )
            y.reshape_like(x)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        *inputs, selector = bottom
        chosen = selector.data.reshape(-1)
        if self.xp.isnan(chosen).any():
            at = int(self.xp.nonzero(self.xp.isnan(chosen))[0][0])
            self.fail(f'the selector "{selector.name}" is NaN for sample {at}; expected is 0 or 1')
        self._kept = self.xp.nonzero(chosen)[0]
        for x, y in zip(inputs, top, strict=True):
            y.reshape(self._kept.size, *x.shape[1:])
            y.data[...] = x.data[self._kept]

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[self._selector]:
            self.fail(f"cannot backpropagate to its selector (bottom {self._selector})")
        for x, y, down in zip(bottom, top, propagate_down, strict=False):
            if down:
                dx = x.diff
                dx[...] = 0
                dx[self._kept] = y.diff

    def allow_force_backward(self, bottom_index: int) -> bool:
        return bottom_index != self._selector

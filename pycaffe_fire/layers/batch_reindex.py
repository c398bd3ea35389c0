"""BatchReindex: samples picked by index."""

from __future__ import annotations

from collections.abc import Sequence

from ..backend.blob import Blob
from .base import Layer, register_layer
from .checks import forbid_in_place, need_axes
from .description import Storage
from .indices import number_text, truncated
from .scatter import add_rows


@register_layer("BatchReindex")
class BatchReindex(Layer):
    """top[i] = bottom0[bottom1[i]]; the batch may shrink, grow and repeat samples."""

    storage = Storage.FLOAT32
    bottoms = (2, 2)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        forbid_in_place(self, bottom, top)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        need_axes(self, bottom[1], 1, "sample numbers")
        if not bottom[0].shape:
            self.fail(f'bottom "{bottom[0].name}" has no samples: it is a single number')
        top[0].reshape(*bottom[1].shape, *bottom[0].shape[1:])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        num = bottom[0].shape[0]
        places = self._places = truncated(self.xp, bottom[1].data)
        wrong = (places < 0) | (places >= num)
        if wrong.any():
            at = int(self.xp.nonzero(wrong)[0][0])
            self.fail(
                f'index {number_text(bottom[1].data[at])} at place {at} of "{bottom[1].name}" is '
                f'not a sample of "{bottom[0].name}": there are {num}'
            )
        top[0].data[...] = bottom[0].data[places]

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[1]:
            self.fail("cannot backpropagate to its sample numbers (bottom 1)")
        if propagate_down[0]:
            dx = bottom[0].diff
            dx[...] = 0
            add_rows(self.xp, dx, self._places, top[0].diff)

    def allow_force_backward(self, bottom_index: int) -> bool:
        return bottom_index == 0

"""Concat: bottoms side by side along one axis."""

from __future__ import annotations

from collections.abc import Sequence

from ..backend.blob import Blob
from ..backend.plans import Rectified
from .base import Layer, register_layer
from .description import Storage


@register_layer("Concat")
class Concat(Layer):
    """top = the bottoms one after the other along `axis`."""

    needs_forward = False
    storage = Storage.MOVED
    family = "joint"
    bottoms = (1, None)
    _shares = False

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.concat_param
        if param.HasField("axis") and param.HasField("concat_dim"):
            self.fail("give either axis or concat_dim (its old name), not both")
        given = param.concat_dim if param.HasField("concat_dim") else param.axis
        axis = self.axis(bottom[0], given)
        shape = list(bottom[0].shape)
        for blob in bottom[1:]:
            rest = [d for i, d in enumerate(blob.shape) if i != axis]
            if len(blob.shape) != len(shape) or rest != [*shape[:axis], *shape[axis + 1 :]]:
                self.fail(
                    f"bottoms must agree in all axes but {axis}, got "
                    f"{', '.join(f'{b.name} {list(b.shape)}' for b in bottom)}"
                )
        shape[axis] = sum(blob.shape[axis] for blob in bottom)
        if len(bottom) == 1:  # nothing to do, as in Caffe
            top[0].value, top[0].gradient = bottom[0].value, bottom[0].gradient
            return
        top[0].reshape(*shape)
        self._plan = self.backend.concat(bottom, top[0], axis)
        if self._shares:
            self._plan.share_gradients()

    def share_gradients(self) -> None:
        self._shares = True
        if len(self.bottom) > 1:
            self._plan.share_gradients()

    @property
    def rectified(self) -> Rectified:
        return None if self.idle or self.empty else self._plan.rectified

    @property
    def idle(self) -> bool:
        return len(self.bottom) == 1

    def places_in_top(self) -> Sequence[int] | None:
        return None if self.idle else self._plan.places()

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if not self.idle:
            self._plan.forward()

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if len(bottom) > 1:
            self._plan.backward(propagate_down)

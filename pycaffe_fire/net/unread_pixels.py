"""Pixels that nobody reads are not computed: strides of 1x1 convolutions move to what they read.

Where a ResNet halves its images, the 1x1 convolutions that read a sum take every other pixel of it
in each direction. So the convolution that writes the sum need not compute the others, nor need the
one before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..backend.blob import Blob
from ..backend.plans import PoolingPlan, Window
from ..backend.tensor import Tensor
from .fused_steps import FusedStep

if TYPE_CHECKING:
    from .wiring import Wiring

Stride = tuple[int, ...]


@dataclass
class ThinStep:
    """Copies every n-th pixel of a blob."""

    index: int
    plan: PoolingPlan
    bottom: Sequence[Blob]
    top: Sequence[Blob]

    def run(self) -> None:
        self.plan.forward()


def skip_unread_pixels(
    net: Wiring, steps: Sequence[FusedStep], wanted: set[Tensor]
) -> list[FusedStep | ThinStep]:
    """The same steps without the pixels that no step reads; `wanted` are whole values."""
    thinner = _Thinner(net, steps, wanted)
    for number in reversed(range(len(steps))):
        thinner.thin(number)
    return thinner.all_steps()


class _Thinner:
    def __init__(self, net: Wiring, steps: Sequence[FusedStep], wanted: set[Tensor]) -> None:
        self._net, self._steps = net, list(steps)
        self._copies: dict[int, ThinStep] = {}  # by the number of the step that reads it
        fused = {index for step in steps for index in step.layers}
        self._whole = wanted | {
            blob.value
            for i, layer in enumerate(net.layers)
            if i not in fused and not layer.idle
            for blob in net.bottoms[i]
        }

    def all_steps(self) -> list[FusedStep | ThinStep]:
        found: list[FusedStep | ThinStep] = []
        for number, step in enumerate(self._steps):
            found += [self._copies[number], step] if number in self._copies else [step]
        return found

    def thin(self, number: int) -> None:
        """Let a step compute only what is read of its top."""
        step = self._steps[number]
        top, readers = step.top[0], self._readers(step.top[0].value)
        stride = self._common_stride(top.value, readers)
        if stride is None or step.op.window is None:
            return
        small, _ = _thinned(top, stride)
        after, copy = step.after, None
        if after.addend is not None:
            addend, plan = _thinned(after.addend, stride)
            copy = ThinStep(step.index, plan, [after.addend], [addend])
            after = replace(after, addend=addend)
        own = zip(step.op.window.stride, stride, strict=True)
        made = {number: self._again(replace(step, top=[small], after=after),
                                    tuple(a * b for a, b in own))}  # fmt: skip
        for reader in readers:
            whole = self._steps[reader]
            bottom = [small, *whole.bottom[1:]]
            made[reader] = self._again(replace(whole, bottom=bottom), (1,) * len(stride))
        if None in made.values():
            return
        for changed, other in made.items():
            assert other is not None
            self._steps[changed] = other
        if copy is not None:
            self._copies[number] = copy
            self._whole.add(copy.bottom[0].value)  # the copy reads pixels that others may skip

    def _readers(self, tensor: Tensor) -> list[int]:
        return [
            number
            for number, step in enumerate(self._steps)
            if any(blob.value is tensor for blob in step.bottom)
        ]

    def _common_stride(self, tensor: Tensor, readers: Sequence[int]) -> Stride | None:
        """How far apart the pixels are that are read of a tensor; None: all may be."""
        if tensor in self._whole:
            return None
        strides = {self._point_stride(tensor, self._steps[number]) for number in readers}
        stride = strides.pop() if len(strides) == 1 else None
        return stride if stride is not None and max(stride) > 1 else None

    def _point_stride(self, tensor: Tensor, step: FusedStep) -> Stride | None:
        """The stride of a convolution of single pixels that reads a tensor."""
        window = step.op.window
        if window is None or any(blob.value is tensor for blob in step.bottom[1:]):
            return None
        points = set(window.kernel) == {1} and set(window.pad) == {0}
        return window.stride if points else None

    def _again(self, step: FusedStep, stride: Stride) -> FusedStep | None:
        """A step on other blobs, with another stride; None: there is no such op."""
        layer, bottom = self._net.layers[step.layers[0]], [step.bottom[0]]
        op = layer.frozen(bottom[0], step.top[0], step.after, stride)
        if op is None:
            return None
        if step.after.addend is not None:
            bottom.append(step.after.addend)
        return replace(step, op=op, bottom=bottom)


def _thinned(blob: Blob, stride: Stride) -> tuple[Blob, PoolingPlan]:
    """A blob for every n-th pixel of another, which lies like that, and what copies them."""
    sizes = ((size - 1) // n + 1 for size, n in zip(blob.shape[2:], stride, strict=True))
    small = Blob(blob.backend, (*blob.shape[:2], *sizes), blob.name)
    ones = (1,) * len(stride)
    window = Window(ones, stride, (0,) * len(stride), ones)
    return small, blob.backend.pooling(blob, small, "AVE", window)

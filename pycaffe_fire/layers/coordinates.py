"""How a layer maps the pixels of a bottom to those of its tops, read from its message alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..errors import NetError


class UndefinedMapException(NetError):
    """A layer that has no coordinate map: its pixels have no place in its bottom."""


class CoordMap(NamedTuple):
    """Pixel x of a bottom is `scale * x + offset` of the top, on all axes after `axis`."""

    axis: int | None  # None: on all axes alike
    scale: Any
    offset: Any


SAME = CoordMap(None, 1, 0)


class Sliding(NamedTuple):
    """A window of a convolution or pooling; arrays of one number, or of one per spatial axis."""

    axis: int  # the one before the pixels
    stride: Any
    extent: Any  # of the dilated kernel
    pad: Any

    def down(self) -> CoordMap:
        """From what the window slides over to what it makes."""
        return CoordMap(
            self.axis, 1 / self.stride, (self.pad - (self.extent - 1) / 2) / self.stride
        )

    def up(self) -> CoordMap:
        """The reverse, for transposed convolutions."""
        return CoordMap(self.axis, self.stride, (self.extent - 1) / 2 - self.pad)


def sliding(kind: str, param: Any) -> Sliding:
    """The window in a ConvolutionParameter or PoolingParameter of a layer of type `kind`."""
    if not hasattr(param, "kernel_size"):
        raise UndefinedMapException(f"{kind} layers have no kernel_size")
    sides = [f"{what}_{side}" for what in ("kernel", "pad", "stride") for side in "hw"]
    given = [name for name in sides if param.HasField(name)]
    size = _values(param, "kernel_size", 0)
    if given or not size.all():
        raise UndefinedMapException(
            f"{kind}: give kernel_size, stride and pad, as lists where sides differ, "
            f"instead of {', '.join(given) or 'nothing'}"
        )
    extent = (size - 1) * _values(param, "dilation", 1) + 1
    axis = getattr(param, "axis", 1)
    return Sliding(axis, _values(param, "stride", 1), extent, _values(param, "pad", 0))


def _values(param: Any, field: str, default: int) -> Any:
    """A field that may be repeated, or not there at all."""
    given: Any = getattr(param, field, default)
    return np.array(list(given) or [default] if hasattr(given, "__len__") else [given])

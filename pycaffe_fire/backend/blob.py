"""Caffe's Blob: a value (`data`) and its gradient (`diff`), both writable arrays of one shape."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import prod
from typing import TYPE_CHECKING

from ..errors import NetError

if TYPE_CHECKING:
    from .base import Backend
    from .tensor import Array, Layout, Tensor

MAX_ELEMENTS = 2**31 - 1  # Caffe's own limit: counts are C ints


class Blob:
    """`data` and `diff` are plain arrays; plans use the tensors `value` and `gradient` instead."""

    def __init__(self, backend: Backend, shape: Sequence[int] = (), name: str = "") -> None:
        self.name = name
        self.backend = backend
        self.value: Tensor = backend.tensor(_checked(shape, name))
        self.gradient: Tensor = backend.tensor(self.value.shape)

    @property
    def data(self) -> Array:
        return self.value.array

    @property
    def diff(self) -> Array:
        return self.gradient.array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.layout.shape

    @property
    def count(self) -> int:
        return prod(self.shape)

    def _legacy_axis(self, axis: int) -> int:
        return self.shape[axis] if axis < len(self.shape) else 1

    @property
    def num(self) -> int:
        return self._legacy_axis(0)

    @property
    def channels(self) -> int:
        return self._legacy_axis(1)

    @property
    def height(self) -> int:
        return self._legacy_axis(2)

    @property
    def width(self) -> int:
        return self._legacy_axis(3)

    def reshape(self, *shape: int) -> None:
        """Change the shape; a real change forgets the contents."""
        if tuple(shape) != self.shape:
            self.lay_out(self.backend.plain_layout(_checked(shape, self.name)))

    def reshape_like(self, other: Blob) -> None:
        self.reshape(*other.shape)

    def lay_out(self, layout: Layout) -> None:
        """Give value and gradient one layout (plans work on pairs that share it)."""
        self.value.lay_out(layout)
        self.gradient.lay_out(self.value.layout)

    def canonical_axis(self, axis: int) -> int:
        """`axis` counted from the front; raises IndexError when out of range."""
        if not -len(self.shape) <= axis < len(self.shape):
            raise IndexError(f"axis {axis} out of range for shape {list(self.shape)}")
        return axis % len(self.shape)

    def dims(self) -> str:
        """`2×3×12×12`, for people."""
        return "×".join(map(str, self.shape)) or "scalar"

    def shape_string(self) -> str:
        """As Caffe prints it: `2 3 12 12 (864)`."""
        return "".join(f"{d} " for d in self.shape) + f"({self.count})"

    def __repr__(self) -> str:
        return f"<Blob {self.name or '?'}: {self.dims()}>"

    def _repr_html_(self) -> str:
        """A notebook shows what is in it."""
        name, rows = escape(self.name or "blob"), ""
        for title, values in (("data", self.data), ("diff", self.diff)):
            if values.size:
                numbers = f"{values.min():.4g} to {values.max():.4g}, mean {values.mean():.4g}"
                rows += f"<tr><td>{title}</td><td>{numbers}</td></tr>"
        return f"<div><b>{name}</b>: {self.dims()}<table>{rows}</table></div>"


class SharedBlob(Blob):
    """Another blob's storage under a different shape (weights shared between unlike layers).

    The owner's tensors must be pinned to the plain layout.
    """

    def __init__(self, owner: Blob, shape: Sequence[int], name: str) -> None:
        self.name, self.backend, self.owner = name, owner.backend, owner
        self.value, self.gradient = owner.value, owner.gradient
        self._shape = tuple(shape)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def data(self) -> Array:
        return self.value.array.reshape(self._shape)

    @property
    def diff(self) -> Array:
        return self.gradient.array.reshape(self._shape)


class BlobView(Blob):
    """The same blob, seen in another way; subclasses say how."""

    def __init__(self, blob: Blob) -> None:
        self._blob = blob
        self.name, self.backend = blob.name, blob.backend
        self.value, self.gradient = blob.value, blob.gradient

    @property
    def shape(self) -> tuple[int, ...]:
        return self._blob.shape

    @property
    def data(self) -> Array:
        return self._blob.data

    def reshape(self, *shape: int) -> None:
        self._blob.reshape(*shape)


def _checked(shape: Sequence[int], name: str) -> tuple[int, ...]:
    dims = tuple(int(d) for d in shape)
    if any(d < 0 for d in dims):
        raise NetError(f'blob "{name}": negative dimension in shape {list(dims)}')
    if prod(d or 1 for d in dims) > MAX_ELEMENTS:  # a 0 must not hide how large the others are
        raise NetError(
            f'blob "{name}": shape {list(dims)} has {prod(dims):,} elements, '
            f"more than Caffe's limit of {MAX_ELEMENTS:,}; use a smaller batch or input"
        )
    return dims

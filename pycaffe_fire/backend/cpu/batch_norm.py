"""Batch normalisation, alone or with a sum: the kernels of native/batch_norm.c and their arrays."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ...errors import BackendError
from ..plans import Norm, RunningMoments
from ..tensor import Array, Tensor
from .library import Floats, Ints, Kernel

if TYPE_CHECKING:
    from ..base import Backend

LANES = 8  # blocks of channels are multiples of it
NO_RELU = 1.0  # the slope below 0 that changes nothing
IN_CACHE = 2**18  # elements of one tensor that all threads take at a time
OF_ONE_THREAD = 2**19  # elements of a block of channels, at most, that one thread takes alone
PIECE = 2**13  # elements of a piece of a tensor whose channels are stored last
PIXELS = 16  # of such a piece, at least

Grid = tuple[int, int, int, int]  # samples, blocks of channels, pixels, channels of a block


class NormKernel(Kernel):
    """The fields that all kernels of norms share; native/norm.h says what they are."""

    mean: Floats
    variance: Floats
    scale: Floats
    shift: Floats
    factor: Floats
    back: Floats
    along: Floats
    level: Floats
    sum: Floats
    product: Floats
    eps: Floats
    slope: Floats
    own: Ints
    near: Floats
    partial_sum: Floats
    partial_product: Floats
    blocks: int
    block: int
    together: int

    def need_channels(self, norms: int, pieces: int) -> None:
        """Check the arrays of so many norms, for tensors of so many pieces."""
        if self.block % LANES:
            self.refuse(f"blocks of {self.block} channels, which are no multiple of {LANES}")
        channels = self.blocks * self.block
        self.need(**dict.fromkeys(CHANNEL_FIELDS, norms * channels))
        self.need(eps=norms, slope=norms, own=norms)
        self.need(**dict.fromkeys(PARTIAL_FIELDS, pieces * channels))

    def refuse(self, what: str) -> NoReturn:
        raise BackendError(f"kernel {self.name}: does not take {what}")


CHANNEL_FIELDS = NormKernel.fields[1 : NormKernel.fields.index("eps")]
PARTIAL_FIELDS = ("near", "partial_sum", "partial_product")


class SingleNormKernel(NormKernel):
    """The fields of kernels with one norm: the pixels of a piece, and of all pieces."""

    pixels: int
    total: int

    def need_tensors(self, *names: str) -> None:
        """Check the arrays of the norm, and that these are whole tensors."""
        if self.pixels < 1 or (self.blocks > 1 and self.total % self.pixels):
            self.refuse(f"{self.total} pixels in pieces of {self.pixels}")
        self.need_channels(1, -(-self.total // self.pixels))
        self.need(**dict.fromkeys(names, self.total * self.blocks * self.block))


class NormForward(SingleNormKernel):
    name = "norm_forward"
    x: Floats
    addend: Floats | None
    kept: Floats | None
    y: Floats

    def check(self) -> None:
        self.need_tensors("x", "addend", "kept", "y")


class NormBackward(SingleNormKernel):
    name = "norm_backward"
    x: Floats
    dy: Floats
    dx: Floats | None

    def check(self) -> None:
        self.need_tensors("x", "dy", "dx")


class NormSumBackward(SingleNormKernel):
    name = "norm_sum_backward"
    x: Floats
    y: Floats
    one: Floats
    other: Floats | None
    g: Floats
    dx: Floats | None

    def check(self) -> None:
        self.need_tensors("x", "y", "one", "other", "g", "dx")


def has_whole_blocks(grid: Grid) -> bool:
    """Return True if kernels can take a layout with this grid some vectors at a time."""
    return grid[3] % LANES == 0 and 0 not in grid


def takes_blocks_apart(grid: Grid, threads: int) -> bool:
    """Return True if threads should take whole blocks of channels each, with all samples."""
    samples, blocks, pixels, block = grid
    return samples * pixels * block <= OF_ONE_THREAD and blocks >= 2 * threads


class Norms:
    """The arrays of some norms over tensors with the same channels; `fields` are for kernels."""

    def __init__(
        self, backend: Backend, norms: Sequence[Norm], channels: int, grid: Grid, pieces: int
    ) -> None:
        """`channels` are those of the blob, without the padding of the grid."""
        padded = prod(grid[1::2])
        arrays: dict[str, Array] = {
            name: np.zeros((len(norms), padded), np.float32) for name in CHANNEL_FIELDS
        }
        arrays["scale"][:, :channels] = 1
        self.fields: dict[str, Any] = {
            **arrays,
            "eps": np.array([norm.eps for norm in norms], np.float32),
            "slope": np.array([_slope(norm) for norm in norms], np.float32),
            "own": np.array([not norm.global_stats for norm in norms], np.int64),
            **{name: np.empty(pieces * padded, np.float32) for name in PARTIAL_FIELDS},
            "threads": backend.threads,
            "blocks": grid[1],
            "block": grid[3],
        }
        self._norms = [
            NormArrays(backend, norm, channels, {name: a[i] for name, a in arrays.items()})
            for i, norm in enumerate(norms)
        ]

    def __getitem__(self, number: int) -> NormArrays:
        return self._norms[number]

    def before_forward(self) -> None:
        """Take scales, shifts and given statistics as they are now."""
        for norm in self._norms:
            norm.before_forward()

    def after_forward(self, running: Sequence[RunningMoments | None]) -> None:
        """Show the statistics of the batch, and add them to running averages."""
        for norm, averages in zip(self._norms, running, strict=True):
            norm.after_forward(averages)

    def before_backward(self) -> None:
        """Take scales as they are now: the caller may have changed them since forward."""
        for norm in self._norms:
            norm.take_scale()

    def after_backward(self, wanted: Sequence[Sequence[bool]]) -> None:
        """Add to the gradients of each norm's scale and shift, where they are wanted."""
        for norm, (scale, shift) in zip(self._norms, wanted, strict=True):
            norm.after_backward(scale, shift)


def _slope(norm: Norm) -> float:
    return NO_RELU if norm.relu is None else norm.relu


class SingleNorm(Norms):
    """The arrays of one norm, and how its kernels cut tensors into pieces."""

    def __init__(self, backend: Backend, norm: Norm, channels: int, grid: Grid) -> None:
        samples, blocks, pixels, block = grid
        total = samples * pixels
        if blocks == 1:  # channels last, so that pieces may be runs of any pixels
            pixels = min(total, max(PIXELS, PIECE // block))
        super().__init__(backend, [norm], channels, grid, pieces=-(-total // pixels))
        together = max(1, IN_CACHE // (total * block))
        if takes_blocks_apart(grid, backend.threads):
            together = 0
        self.fields |= {"pixels": pixels, "total": total, "together": together}


class NormArrays:
    """One of them; `padded` has its arrays by the names of the fields, with the padding."""

    mean: Tensor
    variance: Tensor

    def __init__(
        self, backend: Backend, norm: Norm, channels: int, padded: dict[str, Array]
    ) -> None:
        self.mean, self.variance = backend.tensor((channels,)), backend.tensor((channels,))
        self._norm, self._padded = norm, padded
        self._arrays = {name: array[:channels] for name, array in padded.items()}

    def before_forward(self) -> None:
        norm, arrays = self._norm, self._arrays
        self.take_scale()
        if norm.shift is not None:
            arrays["shift"][...] = norm.shift.data.reshape(-1)
        if norm.global_stats:
            arrays["mean"][...], arrays["variance"][...] = self.mean.array, self.variance.array

    def take_scale(self) -> None:
        if self._norm.scale is not None:
            self._arrays["scale"][...] = self._norm.scale.data.reshape(-1)

    def after_forward(self, running: RunningMoments | None) -> None:
        if not self._norm.global_stats:
            self.mean.array[...] = self._arrays["mean"]
            self.variance.array[...] = self._arrays["variance"]
        if running is not None:
            running.let_in(self.mean.array, self.variance.array)

    def after_backward(self, scale: bool, shift: bool) -> None:
        norm, arrays = self._norm, self._arrays
        if scale and norm.scale is not None:
            products = arrays["product"] / np.sqrt(arrays["variance"] + norm.eps)
            norm.scale.diff[...] += products.reshape(norm.scale.shape)
        if shift and norm.shift is not None:
            norm.shift.diff[...] += arrays["sum"].reshape(norm.shift.shape)

    def multiply_by_scale(self, gradient: Array) -> None:
        """Turn the gradient of scaled values, an array of the grid, into that of normal ones."""
        if self._norm.scale is not None:
            gradient *= self._by_channel("scale", gradient)

    def write_normal(self, source: Array, target: Array) -> None:
        """target = (source - mean) * factor + shift as in the last forward pass, on the grid."""
        np.subtract(source, self._by_channel("mean", target), out=target)
        target *= self._by_channel("factor", target)
        target += self._by_channel("shift", target)

    def write_result(self, source: Array, target: Array) -> None:
        """The same with the ReLU."""
        self.write_normal(source, target)
        if self._norm.relu is not None:
            np.multiply(target, np.float32(self._norm.relu), out=target, where=target <= 0)
            target += 0  # never -0, as in kernels

    def _by_channel(self, name: str, values: Array) -> Array:
        return self._padded[name].reshape(values.shape[1], 1, values.shape[3])

"""What is done to rows (pixels, channels) between products of matrices: native/rows.c."""

from __future__ import annotations

from ...errors import BackendError
from ..plans import Window
from .library import FloatArrays, Floats, Kernel


class AddBias(Kernel):
    """y = relu(y + bias), in place, with the ReLU's slope; 1 is no ReLU."""

    name = "add_bias"
    y: Floats
    bias: Floats
    rows: int
    channels: int
    slope: float

    def check(self) -> None:
        self.need(y=self.rows * self.channels, bias=self.channels)


class WeightedSum(Kernel):
    """y = relu(sum of coefficient * x), with the ReLU's slope; 1 is no ReLU."""

    name = "weighted_sum"
    xs: FloatArrays
    coefficients: Floats
    y: Floats
    inputs: int
    count: int
    slope: float

    def check(self) -> None:
        if not 1 <= self.inputs <= len(self.xs):
            raise BackendError(f"kernel {self.name}: {self.inputs} inputs, {len(self.xs)} arrays")
        self.need(xs=self.count, coefficients=self.inputs, y=self.count)


class ReLUBackward(Kernel):
    """dx = dy where y > 0, else slope * dy."""

    name = "relu_backward"
    y: Floats
    dy: Floats
    dx: Floats
    count: int
    slope: float

    def check(self) -> None:
        self.need(y=self.count, dy=self.count, dx=self.count)


class CopyColumns(Kernel):
    """target[:, to : to + count] = source[:, start : start + count]"""

    name = "copy_columns"
    source: Floats
    target: Floats
    rows: int
    source_columns: int
    target_columns: int
    start: int
    to: int
    count: int

    def check(self) -> None:
        if self.start + self.count > self.source_columns:
            raise BackendError(f"kernel {self.name}: columns beyond {self.source_columns}")
        if self.to + self.count > self.target_columns:
            raise BackendError(f"kernel {self.name}: columns beyond {self.target_columns}")
        self.need(source=self.rows * self.source_columns, target=self.rows * self.target_columns)


class _Patches(Kernel):
    """Windows of images whose channels are last; patches have `count` channels from `start` on."""

    height: int
    width: int
    out_height: int
    out_width: int
    kernel_height: int
    kernel_width: int
    stride_height: int
    stride_width: int
    pad_height: int
    pad_width: int
    dilation_height: int
    dilation_width: int
    channels: int
    start: int
    count: int

    @staticmethod
    def sizes(image: tuple[int, ...], out: tuple[int, ...], window: Window) -> dict[str, int]:
        """Return the fields that describe images, outputs and windows."""
        pairs = {
            "": image, "out_": out, "kernel_": window.kernel, "stride_": window.stride,
            "pad_": window.pad, "dilation_": window.dilation,
        }  # fmt: skip
        return {
            prefix + axis: value
            for prefix, pair in pairs.items()
            for axis, value in zip(("height", "width"), pair, strict=True)
        }

    @property
    def patch(self) -> int:
        """The elements of a patch."""
        return self.kernel_height * self.kernel_width * self.count

    def check_channels(self) -> None:
        if self.start + self.count > self.channels:
            raise BackendError(
                f"kernel {self.name}: channels {self.start} to {self.start + self.count - 1} of "
                f"{self.channels}"
            )


class Im2col(_Patches):
    """Patches of `rows` rows of outputs from number `first` on, counted through all images."""

    name = "im2col"
    x: Floats
    patches: Floats
    first: int
    rows: int

    def check(self) -> None:
        self.check_channels()
        images = -(-(self.first + self.rows) // self.out_height)
        self.need(
            x=images * self.height * self.width * self.channels,
            patches=self.rows * self.out_width * self.patch,
        )


class Col2im(_Patches):
    """The sums of patches, in images from number `first` on."""

    name = "col2im"
    patches: Floats
    dx: Floats
    first: int
    images: int

    def check(self) -> None:
        self.check_channels()
        self.need(
            patches=self.images * self.out_height * self.out_width * self.patch,
            dx=(self.first + self.images) * self.height * self.width * self.channels,
        )

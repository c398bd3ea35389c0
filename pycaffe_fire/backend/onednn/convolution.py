"""Convolution and deconvolution as oneDNN primitives, with the ReLU after them fused in."""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, cast

from ...errors import BackendError
from ..blob import Blob
from ..numpy.convolution import Convolution as Patches
from ..plans import Window
from .layouts import Descriptor, Lowered, Program, Seen
from .library import (
    BF16,
    CONVOLUTION_DIRECT,
    DECONVOLUTION_DIRECT,
    F32,
    FORWARD_TRAINING,
    addend,
    consists_of,
    dims,
)
from .weighted import Runnable, Weighted

if TYPE_CHECKING:
    from . import OneDNNBackend

SLOW = ("ref", "gemm", "simple")  # none of them is worth keeping the source's layout for


class Convolution(Weighted):
    """Weights keep the layout of the first forward primitive for the whole run.

    The data gradient wants them the other way round and gets one cheap reorder per pass. A
    direction for which the library has only its reference loops in every layout (the weight
    gradient of a 63x63 window over many channels) is gathered into patches and multiplied instead.
    """

    def __init__(
        self, backend: OneDNNBackend, x: Blob, w: Blob, b: Blob | None, y: Blob, window: Window,
        groups: int, relu: float | None, transposed: bool, addend: Blob | None = None,
    ) -> None:  # fmt: skip
        super().__init__(backend, x, w, b, y, relu)
        self._addend = addend
        self.window, self.groups, self.transposed = window, groups, transposed
        self.kind = "deconvolution" if transposed else "convolution"
        self.algorithm = DECONVOLUTION_DIRECT if transposed else CONVOLUTION_DIRECT
        self._plain_weights = self._caffe_weights()
        self._kind = backend.operand_kind
        if self._kind == BF16 and not self._multiplies_bf16():
            self._kind = F32
        self._source, self._hint = self._choose_source()
        self._lay_out()

    # Geometry.

    def _caffe_weights(self) -> Descriptor:
        """Caffe's plain weight array in oneDNN's logical order (groups?, O/g, I/g, k...)."""
        first, second, *kernel = self.w.shape
        groups, area = self.groups, prod(kernel)
        out, into = (second, first // groups) if self.transposed else (first // groups, second)
        shape = [out, into, *kernel]
        strides = [into * area, area] if not self.transposed else [area, out * area]
        strides += [prod(kernel[i + 1 :]) for i in range(len(kernel))]
        if groups > 1:
            shape, strides = [groups, *shape], [out * into * area, *strides]
        return Descriptor.strided(self.library, shape, strides)

    def _geometry(self) -> list[Any]:
        """Strides, dilations (counted from 0), left pads and right pads (may be negative)."""
        win = self.window
        small, large = (self.x, self.y) if self.transposed else (self.y, self.x)
        right = [
            (small.shape[2 + i] - 1) * win.stride[i]
            + (win.kernel[i] - 1) * win.dilation[i] + 1
            - large.shape[2 + i] - win.pad[i]
            for i in range(len(win.kernel))
        ]  # fmt: skip
        return [dims(win.stride), dims([d - 1 for d in win.dilation]), dims(win.pad), dims(right)]

    # Layouts.

    def _any(self, shape: tuple[int, ...]) -> Descriptor:
        return Descriptor.any(self.library, shape)

    def _operand(self, shape: tuple[int, ...]) -> Descriptor:
        return Descriptor.any(self.library, shape, self._kind)

    def _multiplies_bf16(self) -> bool:
        """Does the library have fast kernels of 16 bits for all three directions?"""
        made: list[int] = []
        source = self._operand(self.x.shape)
        try:
            made.append(self._forward_descriptor(self.relu, source))
            made.append(self._data_descriptor(made[0]))
            made.append(self._gradient_descriptor(made[0], source, self.b is not None))
        except BackendError:
            return False
        finally:
            slow = [consists_of(self.library.implementation(each), SLOW) for each in made]
            for each in made:
                self.library.destroy("primitive_desc", each)
        return not any(slow)

    def _bias(self, wanted: bool = True) -> Descriptor | None:
        return Descriptor.contiguous(self.library, self.b.shape) if self.b and wanted else None

    def _forward_descriptor(self, relu: float | None, source: Descriptor) -> int:
        target, added = self._any(self.y.shape), None
        if self._addend is not None:
            target = added = cast(Descriptor, self._addend.value.layout)
        with self.backend.attributes(relu, addends=[added] if added else []) as attributes:
            return self._create(
                "forward", FORWARD_TRAINING, self.algorithm, source,
                self._operand(self._plain_weights.shape), self._bias(), target,
                *self._geometry(), attributes,
            )  # fmt: skip

    def _choose_source(self) -> tuple[Descriptor, int]:
        """Take the source as it lies if a fast kernel does, else what the library likes best."""
        layout = self.x.value.layout
        if isinstance(layout, Descriptor) and not layout.is_plain and self._kind == F32:
            made = self._forward_descriptor(self.relu, layout)
            if not consists_of(self.library.implementation(made), SLOW):
                return layout, made
            self.library.destroy("primitive_desc", made)
        free = self._operand(self.x.shape)
        return free, self._forward_descriptor(self.relu, free)

    def _lay_out(self) -> None:
        """Lay out the output, and the weights unless an earlier plan did."""
        self.y.lay_out(self._chosen(self.y, self._hint, "dst"))
        w = self.w
        if not w.value.pinned:
            wanted = Descriptor.chosen(w.shape, self._hint, "weights", self._plain_weights)
            if not wanted.is_plain and self._kind == F32:
                w.lay_out(wanted)
            w.value.pinned = w.gradient.pinned = True
        stored = w.value.layout
        assert isinstance(stored, Descriptor)
        self._stored = self._plain_weights if stored.is_plain else stored

    def _chosen(self, blob: Blob, primitive_descriptor: int, what: str) -> Descriptor:
        plain = Descriptor.contiguous(self.library, blob.shape)
        return Descriptor.chosen(blob.shape, primitive_descriptor, what, plain)

    def _weights_as(self, primitive_descriptor: int, what: str) -> Descriptor:
        shape = self._plain_weights.shape
        return Descriptor.chosen(shape, primitive_descriptor, what, self._plain_weights)

    @property
    def is_slow(self) -> bool:
        """Has the library nothing made for this case?"""
        return consists_of(self.library.implementation(self._hint), SLOW)

    # Programs.

    @cached_property
    def _patches(self) -> Patches:
        return Patches(
            self.backend, self.x, self.w, self.b, self.y, self.window, self.groups, self.relu,
            self.transposed, lay_out=False,
        )  # fmt: skip

    def _usable(self, made: int) -> bool:
        """Is this more than a reference implementation? If not, it is given back."""
        if self.library.is_reference(made):
            self.library.destroy("primitive_desc", made)
            return False
        return True

    def _forward_program(self, relu: float | None) -> Runnable:
        made = self._forward_descriptor(relu, self._source)
        if not self._usable(made):
            return Lowered(lambda: self._patches.forward(relu is not None))
        program = Program(self.backend)
        x = self._source_in(program, made)
        w = self._weights_in(program, made)
        y, staged = program.target(self.y.value, self._chosen(self.y, made, "dst"))
        bias = self.b.value if self.b else None
        added = self._addend.value if self._addend is not None else None
        program.add(made, {"src": x, "weights": w, "bias": bias, addend(0): added, "dst": y})
        program.finish(staged)
        return program

    def _source_in(self, program: Program, made: int) -> Seen:
        """The input as a primitive wants it."""
        wanted = self._chosen(self.x, made, "src")
        return program.rounded(program.source(self.x.value, wanted))

    def _weights_in(self, program: Program, made: int) -> Seen:
        """The weights as a primitive wants them."""
        wanted = self._weights_as(made, "weights")
        return program.rounded(program.source(self.w.value, wanted, self._stored))

    def _gradient_in(self, program: Program, made: int) -> Seen:
        """The output's gradient as a primitive wants it."""
        wanted = self._chosen(self.y, made, "diff_dst")
        return program.rounded(program.source(self.y.gradient, wanted))

    def _data_descriptor(self, hint: int) -> int:
        return self._gradient_of(self.x.shape, self._geometry(), hint)

    def _gradient_of(self, source: tuple[int, ...], geometry: list[Any], hint: int) -> int:
        """That of the source, of this shape, from the output's."""
        return self._create(
            "backward_data", self.algorithm, self._any(source),
            self._operand(self._plain_weights.shape), self._operand(self.y.shape),
            *geometry, hint, None,
        )  # fmt: skip

    def _data_program(self) -> Runnable:
        made = self._data_descriptor(self._hint)
        if not self._usable(made):
            return Lowered(lambda: self._patches.backward(True, False, False))
        program = Program(self.backend)
        dy, w = self._gradient_in(program, made), self._weights_in(program, made)
        dx, staged = program.target(self.x.gradient, self._chosen(self.x, made, "diff_src"))
        program.add(made, {"diff_dst": dy, "weights": w, "diff_src": dx})
        program.finish(staged)
        return program

    def _gradient_descriptor(self, hint: int, source: Descriptor, bias: bool) -> int:
        return self._create(
            "backward_weights", self.algorithm, source,
            self._any(self._plain_weights.shape), self._bias(bias), self._operand(self.y.shape),
            *self._geometry(), hint, None,
        )  # fmt: skip

    def _weights_descriptor(self, bias: bool) -> int | None:
        """With the source as forward takes it, else as the library likes it best; None for slow."""
        for source in (self._source, self._operand(self.x.shape)):
            made = self._gradient_descriptor(self._hint, source, bias)
            if self._usable(made):
                return made
        return None

    def _weights_program(self, weights: bool, bias: bool, add_w: bool, add_b: bool) -> Runnable:
        made = self._weights_descriptor(bias)
        if made is None:
            return Lowered(lambda: self._patches.backward(False, weights, bias))
        program = Program(self.backend)
        x = self._source_in(program, made)
        dy = self._gradient_in(program, made)
        chosen = self._weights_as(made, "diff_weights")
        dw, staged = program.target(self.w.gradient, chosen, self._stored, add_w, weights)
        arguments: dict[str | int, Any] = {"src": x, "diff_dst": dy, "diff_weights": dw}
        if bias and self.b is not None:
            plain = Descriptor.contiguous(self.library, self.b.shape)
            arguments["diff_bias"], staged_bias = program.target(
                self.b.gradient, plain, None, add_b
            )
        program.add(made, arguments)
        program.finish(staged)
        if bias and self.b is not None:
            program.finish(staged_bias)
        return program

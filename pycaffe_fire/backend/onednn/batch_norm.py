"""Batch normalisation, with the scale, shift and ReLU after it: one primitive, or our kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..blob import Blob
from ..cpu import library as native
from ..cpu.batch_norm import NormBackward, NormForward, SingleNorm, has_whole_blocks
from ..plans import Norm, NormPlan, RunningMoments
from ..tensor import NATIVE, Array
from .grids import grid_of, read, seen, written
from .layouts import Descriptor, OneDNNTensor, Program
from .library import (
    BACKWARD,
    BACKWARD_DATA,
    FORWARD_TRAINING,
    NORM_GLOBAL,
    NORM_RELU,
    NORM_SCALE,
    NORM_SHIFT,
)

if TYPE_CHECKING:
    from . import OneDNNBackend


class BatchNorm(NormPlan):
    """The library's. In place, the input is kept for backward by swapping two buffers instead of
    copying."""

    def __init__(
        self, backend: OneDNNBackend, x: Blob, y: Blob, scale: Blob | None, shift: Blob | None,
        eps: float, global_stats: bool, relu: bool,
    ) -> None:  # fmt: skip
        self.backend, self.library = backend, backend.library
        self.x, self.y, self.scale, self.shift, self.eps = x, y, scale, shift, eps
        y.lay_out(x.value.layout)
        layout = x.value.layout
        assert isinstance(layout, Descriptor)
        self._layout = layout
        self._source: Any = x.value
        self._last_output: Array | None = None
        if x is y:
            self._source = OneDNNTensor(backend, x.shape)
            self._source.lay_out(layout)
        self._prepare(Norm(scale, shift, eps, global_stats, 0.0 if relu else None))

    def _prepare(self, norm: Norm) -> None:
        channels = self.x.shape[1:2]
        self.mean, self.variance = self.backend.tensor(channels), self.backend.tensor(channels)
        self._flags = (
            NORM_GLOBAL * norm.global_stats | NORM_SCALE * (norm.scale is not None)
            | NORM_SHIFT * (norm.shift is not None) | NORM_RELU * (norm.relu is not None)
        )  # fmt: skip
        layout = self._layout
        self._hint = self._create(
            "forward", FORWARD_TRAINING, layout, layout, norm.eps, self._flags
        )  # fmt: skip
        self._workspace = self._make_workspace()
        self._forward = self._forward_program(norm.global_stats)
        self._backward: dict[tuple[bool, ...], Program] = {}

    def _create(self, what: str, *arguments: Any) -> int:
        self.backend.use_threads()
        handles = [a.handle if isinstance(a, Descriptor) else a for a in arguments]
        name = f"batch_normalization_{what}_primitive_desc_create"
        return self.library.new(name, self.library.engine, *handles, None)

    def _make_workspace(self) -> OneDNNTensor | None:
        handle = self.library.query_descriptor(self._hint, "workspace")
        if handle is None:
            return None
        tensor = OneDNNTensor(self.backend, self.x.shape)
        plain = self.backend.plain_layout(())
        tensor.lay_out(Descriptor(self.library, self.x.shape, handle, plain))
        return tensor

    def _forward_program(self, global_stats: bool) -> Program:
        program = Program(self.backend)
        arguments: dict[str | int, Any] = {
            "src": self._source,
            "mean": self.mean,
            "variance": self.variance,
            "scale": self.scale.value if self.scale else None,
            "shift": self.shift.value if self.shift else None,
            "dst": self.y.value,
            "workspace": self._workspace,
        }
        program.add(self._hint, arguments, () if global_stats else ("mean", "variance"))
        return program

    def forward(self, running: RunningMoments | None = None) -> None:
        if self._source is not self.x.value:
            self._set_input_aside()
        self._normalise(running)

    def _normalise(self, running: RunningMoments | None) -> None:
        self._forward.run()
        if running is not None:
            running.let_in(self.mean.array, self.variance.array)

    def _set_input_aside(self) -> None:
        """Let `_source` and the blob swap their buffers, so that the output is written elsewhere.

        Where several plans do that with one blob, each goes on with what the one before it left.
        A buffer that is not the blob's own (a data layer lends it, or it is another blob's) is
        never written: there the last output's serves again. An array of the blob that a caller
        holds must show the output, so then the input is copied.
        """
        value, source = self.x.value, self._source
        value.sync()
        if self._layout.is_plain and value.held:
            if source.buffer is value.buffer:
                source.bind(None)
            source.replace(value.copied())
            return
        given, target = value.buffer, source.buffer
        assert isinstance(value, OneDNNTensor)
        if value.lent or target is given:
            target = self._last_output
        source.bind(given)
        value.bind(target if target is not None else self.backend.empty(self._layout.elements))
        self._last_output = value.buffer
        source.fresh = NATIVE

    def restore(self) -> None:
        value, source = self.x.value, self._source
        if source is not value:
            value.buffer[: self._layout.elements] = source.buffer[: self._layout.elements]  # type: ignore[index]
            value.fresh = NATIVE

    def backward(self, data: bool, scale: bool, shift: bool) -> None:
        add_scale = scale and self.scale is not None and self.scale.gradient.fresh != 0
        add_shift = shift and self.shift is not None and self.shift.gradient.fresh != 0
        key = (data, scale, shift, add_scale, add_shift)
        if key not in self._backward:
            self._backward[key] = self._backward_program(*key)
        self._backward[key].run()

    def _backward_program(
        self, data: bool, scale: bool, shift: bool, add_scale: bool, add_shift: bool
    ) -> Program:
        layout = self._layout
        kind = BACKWARD if self.scale or self.shift else BACKWARD_DATA
        made = self._create(
            "backward", kind, layout, layout, layout, self.eps, self._flags, self._hint
        )
        program = Program(self.backend)
        arguments: dict[str | int, Any] = {
            "src": self._source,
            "mean": self.mean,
            "variance": self.variance,
            "scale": self.scale.value if self.scale else None,
            "diff_dst": self.y.gradient,
            "workspace": self._workspace,
        }
        arguments["diff_src"], staged = program.target(self.x.gradient, layout, None, False, data)
        waiting = [staged]
        for name, blob, wanted, add in (
            ("diff_scale", self.scale, scale, add_scale),
            ("diff_shift", self.shift, shift, add_shift),
        ):
            if blob is not None:
                plain = Descriptor.contiguous(self.library, blob.shape)
                arguments[name], staged = program.target(blob.gradient, plain, None, add, wanted)
                waiting.append(staged)
        program.add(made, arguments)
        for staged in waiting:
            program.finish(staged)
        return program


class NormInCache(BatchNorm):
    """Our kernel, which reads memory once where the library reads it again for each pass."""

    _passing: Array | None = None  # memory for results that pass
    _passed = False  # is the last one there?

    @staticmethod
    def suits(x: Blob) -> bool:
        return native.available() and has_whole_blocks(grid_of(x.value.layout))

    def _prepare(self, norm: Norm) -> None:
        grid = grid_of(self._layout)
        self._norms = SingleNorm(self.backend, norm, self.x.shape[1], grid)
        self.mean, self.variance = self._norms[0].mean, self._norms[0].variance
        self._forward_kernel = NormForward(**self._norms.fields)
        self._backward_kernel = NormBackward(**self._norms.fields)

    @property
    def can_pass(self) -> bool:
        return self.x is self.y

    def pass_on(self, memory: Array) -> None:
        self._passing = memory

    def take_back(self) -> None:
        if self._passing is not None and self._source.buffer is not None:
            self.x.value.bind(self._source.buffer)
            self._passed = False

    def show_passed(self) -> None:
        if not self._passed:
            return
        self._passed = False
        self.y.value.bind(None)
        self._norms[0].write_result(seen(self._source), written(self.y.value))

    def _set_input_aside(self) -> None:
        value = self.x.value
        assert isinstance(value, OneDNNTensor)
        if self._passing is None or value.held or value.lent:
            super()._set_input_aside()
            return
        value.sync()
        self._source.bind(value.buffer)
        self._source.fresh = NATIVE
        value.bind(self._passing[: self._layout.elements])
        self._passed = True

    def restore(self) -> None:
        if self._passed:
            self.take_back()
        else:
            super().restore()

    def _normalise(self, running: RunningMoments | None) -> None:
        kernel = self._forward_kernel
        self._norms.before_forward()
        kernel.x, kernel.y = read(self._source), written(self.y.value)
        kernel.run()
        self._norms.after_forward([running])

    def backward(self, data: bool, scale: bool, shift: bool) -> None:
        kernel = self._backward_kernel
        kernel.x, kernel.dy = seen(self._source), read(self.y.gradient)
        kernel.dx = written(self.x.gradient) if data else None
        self._norms.before_backward()
        kernel.run()
        self._norms.after_backward([(scale, shift)])

"""Lstm: the LSTM over rows of steps and streams that forks had before Caffe's own (caffe-lstm)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..backend.blob import Blob
from .base import register_layer
from .checks import forbid_in_place
from .description import Storage
from .lstm_unit import unroll, unroll_back
from .recurrent import Learner


@register_layer("Lstm")
class Lstm(Learner):
    """Gates W_i x_t + b + W_h h_(t-1), in the order i, f, o, g, then LSTMUnit's step.

    Bottoms: x, whose rows are those of all streams (batch_size of them) at the first step, then at
    the second and so on; then perhaps clip, a number per row: 0 where a sequence begins. With clip
    a pass goes on where the last one ended, without it every pass begins with zeros. As in forks
    for CRNNs, an x of three axes without a batch_size is steps x streams x values.
    Top: a row of num_output values for each of x. Weights: W_i, W_h, b. The gradient of each step's
    sums is cut to +-clipping_threshold, if that is above 0; gradients stop at the ends of a pass.
    """

    param_field = "lstm_param"
    storage = Storage.FLOAT32
    family = "product"
    bottoms = (1, 2)

    def multiply_adds(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> int:
        return self._steps * self._streams * sum(blob.count for blob in self.blobs[:2])

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.lstm_param
        for field in ("num_output", "batch_size"):
            if getattr(param, field) < 1:
                self.fail(f"{field} must be at least 1, got {getattr(param, field)}")
        if param.clipping_threshold < 0:
            self.fail(f"clipping_threshold must not be negative, got {param.clipping_threshold:g}")
        forbid_in_place(self, bottom, top)
        self._width = int(param.num_output)
        rows, axis = 4 * self._width, self._first_value(bottom[0])
        self.add_param((rows, prod(bottom[0].shape[axis:])), param.weight_filler)
        self.add_param((rows, self._width), param.weight_filler)
        self.add_param((rows,), param.bias_filler)
        self.memory = {} if len(bottom) > 1 else None

    def _first_value(self, x: Blob) -> int:
        """The first axis of x that belongs to the values of a row."""
        by_step = len(x.shape) == 3 and not self.param.lstm_param.HasField("batch_size")
        return 2 if by_step else 1

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x, axis = bottom[0], self._first_value(bottom[0])
        want, values = self.blobs[0].shape[1], prod(x.shape[axis:])
        if values != want:
            self.fail(f'its weights take {want} values of "{x.name}", got {values}')
        rows = prod(x.shape[:axis])
        self._streams = x.shape[1] if axis == 2 else int(self.param.lstm_param.batch_size)
        if not rows or rows % self._streams:
            self.fail(
                f"needs rows for steps of {self._streams} streams (batch_size), got {rows} in "
                f'"{x.name}" {list(x.shape)}'
            )
        self._steps = rows // self._streams
        if len(bottom) > 1 and bottom[1].count != rows:
            self.fail(
                f"its second bottom must hold {rows} numbers, one per row: 0 where a sequence "
                f'begins, 1 elsewhere; got "{bottom[1].name}" {list(bottom[1].shape)}'
            )
        top[0].reshape(*x.shape[:axis], self._width)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        weights, recurrent, bias = (blob.data for blob in self.blobs)
        sums = bottom[0].data.reshape(-1, weights.shape[1]) @ weights.T + bias
        self._trace = unroll(
            self.xp, self._by_step(sums), self._cont(bottom), recurrent, self._initial(sums),
            self._by_step(top[0].data),
        )  # fmt: skip
        if self.memory is not None:
            self.memory[self.context.leaf] = self._trace.final

    def _by_step(self, rows: Any) -> Any:
        return rows.reshape(self._steps, self._streams, -1)

    def _cont(self, bottom: Sequence[Blob]) -> Any:
        """0 where a sequence begins, 1 elsewhere (steps x streams x 1)."""
        dtype = bottom[0].data.dtype
        if len(bottom) > 1:
            return (self._by_step(bottom[1].data) != 0).astype(dtype)
        cont = self.xp.ones((self._steps, self._streams, 1), dtype)
        cont[0] = 0
        return cont

    def _initial(self, sums: Any) -> list[Any]:
        shape = (self._streams, self._width)
        kept = (self.memory or {}).get(self.context.leaf)
        if kept is None or kept[0].shape != shape:
            return [self.xp.zeros(shape, sums.dtype) for _ in range(2)]
        return kept

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if any(propagate_down[1:]):
            self.fail("cannot backpropagate to its sequence indicators (bottom 1)")
        weights, recurrent = (blob.data for blob in self.blobs[:2])
        d_sums = unroll_back(
            self.xp, self._trace, self._cont(bottom), recurrent, self._by_step(top[0].diff),
            self.param.lstm_param.clipping_threshold,
        )  # fmt: skip
        flat = d_sums.reshape(-1, len(recurrent))
        self.learn(0, flat.T, bottom[0].data.reshape(len(flat), -1))
        self.learn(1, flat.T, self._trace.hidden.reshape(len(flat), -1))
        self.learn_bias(2, flat)
        if propagate_down[0]:
            bottom[0].diff[...] = (flat @ weights).reshape(bottom[0].shape)

    def allow_force_backward(self, bottom_index: int) -> bool:
        return bottom_index == 0

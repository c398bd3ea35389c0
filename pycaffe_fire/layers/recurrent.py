"""RNN and LSTM over sequences: one product for all inputs, then a loop over the time steps."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

from ..backend.blob import Blob
from .base import Layer, register_layer
from .checks import forbid_in_place
from .description import Storage
from .lstm_unit import unroll, unroll_back


class Learner(Layer):
    """A layer that multiplies by several weights and learns each from two matrices."""

    def learn(self, index: int, left: Any, right: Any) -> None:
        """Add left @ right to the gradient of a weight that learns."""
        if self.param_propagate_down[index]:
            diff = self.blobs[index].diff
            diff += left @ right

    def learn_bias(self, index: int, rows: Any) -> None:
        if self.param_propagate_down[index]:
            diff = self.blobs[index].diff
            diff += rows.sum(axis=0)


class Recurrent(Learner):
    """What RNN and LSTM share: bottoms and tops, the input's part of the sums, hidden states.

    Bottoms: x (T x N x ...), cont (T x N, 0 where a sequence begins), then optionally a static
    input (N x ...), then with expose_hidden the initial states. Tops: T x N x num_output, then
    with expose_hidden the final states. Without it the final states of a pass are the initial
    states of the next. Gradients stop at the ends of a pass, as in Caffe.
    """

    param_field = "recurrent_param"
    storage = Storage.FLOAT32
    family = "product"
    bottoms = (2, 5)
    tops = (1, 3)
    states: ClassVar[int]  # how many hidden states there are
    gates: ClassVar[int]  # how many sums per unit

    def multiply_adds(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> int:
        """Every step and stream takes all weights; a static input is multiplied once per stream."""
        steps, streams = bottom[0].shape[:2]
        counts = [blob.count for blob in self.blobs if len(blob.shape) > 1]
        static = counts.pop(1) if self._static else 0
        return streams * (steps * sum(counts) + static)

    # For subclasses: the loop over time.

    def add_output_params(self) -> None:
        """Weights after the recurrent ones."""

    def run(self, sums: Any, cont: Any, states: list[Any], out: Any) -> list[Any]:
        """Write `out` from the inputs' sums (T x N x gates D); returns the final states."""
        raise NotImplementedError

    def run_back(self, cont: Any, d_out: Any) -> tuple[Any, Any]:
        """(gradient of the sums, the values that the recurrent weights multiplied)."""
        raise NotImplementedError

    # Shapes and weights.

    def check_counts(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._exposed = self.states if self.param.recurrent_param.expose_hidden else 0
        low, with_hidden = 2 + self._exposed, " with expose_hidden" if self._exposed else ""
        if len(bottom) not in (low, low + 1):
            self.fail(f"expects {low} or {low + 1} bottoms{with_hidden}, got {len(bottom)}")
        if len(top) != 1 + self._exposed:
            self.fail(f"expects {1 + self._exposed} top(s){with_hidden}, got {len(top)}")
        self._static = len(bottom) > low

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.recurrent_param
        if param.num_output < 1:
            self.fail(f"num_output must be at least 1, got {param.num_output}")
        self._width = int(param.num_output)
        forbid_in_place(self, bottom, top)
        self._check_axes(bottom)
        rows, fill = self.gates * self._width, param.weight_filler
        self.add_param((rows, prod(bottom[0].shape[2:])), fill)
        self.add_param((rows,), param.bias_filler)
        if self._static:
            self.add_param((rows, prod(bottom[2].shape[1:])), fill)
        self.recurrent_index = len(self.blobs)
        self.add_param((rows, self._width), fill)
        self.add_output_params()
        self.memory = None if self._exposed else {}

    def _check_axes(self, bottom: Sequence[Blob]) -> None:
        x, cont = bottom[0].shape, bottom[1].shape
        if len(x) < 3 or not x[0]:
            self.fail(f"needs a bottom of steps x streams x values, got {list(x)}")
        if cont != x[:2]:
            self.fail(
                f"its second bottom must be steps x streams ({list(x[:2])}): 0 where a sequence "
                f"begins, 1 elsewhere; got {list(cont)}"
            )
        if self._static and (len(bottom[2].shape) < 2 or bottom[2].shape[0] != x[1]):
            self.fail(
                f"its static input must be streams x values with {x[1]} streams, got "
                f"{list(bottom[2].shape)}"
            )

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._check_axes(bottom)
        inputs = [(0, bottom[0], 2)] + ([(2, bottom[2], 1)] if self._static else [])
        for weight, blob, axis in inputs:
            values, want = prod(blob.shape[axis:]), self.blobs[weight].shape[1]
            if values != want:
                self.fail(f'its weights take {want} values of "{blob.name}", got {values}')
        steps, streams = bottom[0].shape[:2]
        state = (1, streams, self._width)
        for blob in bottom[2 + self._static :]:
            if blob.shape != state:
                self.fail(
                    f'hidden state "{blob.name}" must have shape {list(state)}, got '
                    f"{list(blob.shape)}"
                )
        top[0].reshape(steps, streams, self._width)
        for blob in top[1:]:
            blob.reshape(*state)

    # Running.

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = bottom[0].data
        weights, bias = self.blobs[0].data, self.blobs[1].data
        sums = x.reshape(-1, weights.shape[1]) @ weights.T + bias
        sums = sums.reshape(*x.shape[:2], -1)
        if self._static:
            static = bottom[2].data
            sums += static.reshape(len(static), -1) @ self.blobs[2].data.T
        final = self.run(sums, bottom[1].data[..., None], self._initial(bottom), top[0].data)
        for blob, state in zip(top[1:], final, strict=False):
            blob.data[...] = state
        if self.memory is not None:
            self.memory[self.context.leaf] = final

    def _initial(self, bottom: Sequence[Blob]) -> list[Any]:
        if self.memory is None:
            return [blob.data[0].copy() for blob in bottom[2 + self._static :]]
        shape = (bottom[0].shape[1], self._width)
        kept = self.memory.get(self.context.leaf)
        if kept is None or kept[0].shape != shape:
            return [self.xp.zeros(shape, bottom[0].data.dtype) for _ in range(self.states)]
        return kept

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[1]:
            self.fail("cannot backpropagate to its sequence indicators (bottom 1)")
        d_sums, hidden = self.run_back(bottom[1].data[..., None], top[0].diff)
        flat = d_sums.reshape(-1, d_sums.shape[-1])
        x = bottom[0].data.reshape(len(flat), -1)
        self.learn(0, flat.T, x)
        self.learn_bias(1, flat)
        self.learn(self.recurrent_index, flat.T, hidden.reshape(len(flat), -1))
        if propagate_down[0]:
            bottom[0].diff[...] = (flat @ self.blobs[0].data).reshape(bottom[0].shape)
        if self._static:
            self._backward_static(d_sums.sum(axis=0), propagate_down[2], bottom[2])
        first = 2 + self._static
        for blob, down in zip(bottom[first:], propagate_down[first:], strict=True):
            if down:
                blob.gradient.clear()  # gradients do not cross from pass to pass

    def _backward_static(self, d_sums: Any, down: bool, static: Blob) -> None:
        self.learn(2, d_sums.T, static.data.reshape(len(d_sums), -1))
        if down:
            static.diff[...] = (d_sums @ self.blobs[2].data).reshape(static.shape)

    def allow_force_backward(self, bottom_index: int) -> bool:
        return bottom_index != 1


@register_layer("LSTM")
class LSTM(Recurrent):
    """Gates W_xc x_t + b_c + W_xc_static x_static + W_hc (cont_t h_(t-1)), then LSTMUnit's step.

    Weights: W_xc, b_c, (W_xc_static), W_hc; hidden states: h, c.
    """

    states = 2
    gates = 4

    def run(self, sums: Any, cont: Any, states: list[Any], out: Any) -> list[Any]:
        recurrent = self.blobs[self.recurrent_index].data
        self._trace = unroll(self.xp, sums, cont, recurrent, states, out)
        return self._trace.final

    def run_back(self, cont: Any, d_out: Any) -> tuple[Any, Any]:
        recurrent = self.blobs[self.recurrent_index].data
        return unroll_back(self.xp, self._trace, cont, recurrent, d_out), self._trace.hidden


@register_layer("RNN")
class RNN(Recurrent):
    """h_t = tanh(W_xh x_t + b_h + W_xh_static x_static + W_hh (cont_t h_(t-1))).

    top_t = tanh(W_ho h_t + b_o). Weights: W_xh, b_h, (W_xh_static), W_hh, W_ho, b_o.
    """

    states = 1
    gates = 1

    def add_output_params(self) -> None:
        param = self.param.recurrent_param
        self.add_param((self._width, self._width), param.weight_filler)
        self.add_param((self._width,), param.bias_filler)

    def run(self, sums: Any, cont: Any, states: list[Any], out: Any) -> list[Any]:
        xp = self.xp
        recurrent, weights, bias = (blob.data for blob in self.blobs[-3:])
        hidden = states[0]
        self._conted = xp.empty(out.shape, out.dtype)
        self._hidden = xp.empty(out.shape, out.dtype)
        for t in range(len(sums)):
            self._conted[t] = cont[t] * hidden
            hidden = xp.tanh(sums[t] + self._conted[t] @ recurrent.T)
            self._hidden[t] = hidden
        self._out = xp.tanh(self._hidden @ weights.T + bias)
        out[...] = self._out
        return [hidden]

    def run_back(self, cont: Any, d_out: Any) -> tuple[Any, Any]:
        recurrent, weights = self.blobs[-3].data, self.blobs[-2].data
        d_out = d_out * (1 - self._out * self._out)
        rows = d_out.reshape(-1, self._width)
        last = len(self.blobs) - 1
        self.learn(last - 1, rows.T, self._hidden.reshape(rows.shape))
        self.learn_bias(last, rows)
        d_sums = d_out @ weights
        d_hidden: Any = 0
        for t in reversed(range(len(d_sums))):
            d_sums[t] = (d_sums[t] + d_hidden) * (1 - self._hidden[t] * self._hidden[t])
            d_hidden = cont[t] * (d_sums[t] @ recurrent)
        return d_sums, self._conted

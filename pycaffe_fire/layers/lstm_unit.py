"""LSTMUnit: one time step of an LSTM, from summed gate inputs to the new cell and output.

`unroll` and `unroll_back` run such steps over time, for the layers that do it by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..backend.blob import Blob
from .base import Layer, register_layer
from .checks import forbid_in_place
from .description import Storage
from .sigmoid import sigmoid


def step(xp: Any, gates: Any, cell: Any, cont: Any) -> tuple[Any, Any, Any]:
    """(gate values, new cell, new output) from gate inputs in the order i, f, o, g.

    `cont` is 0 where a new sequence begins, which shuts the forget gate.
    """
    width = cell.shape[-1]
    values = xp.empty_like(gates)
    values[..., : 3 * width] = sigmoid(xp, gates[..., : 3 * width])
    values[..., 3 * width :] = xp.tanh(gates[..., 3 * width :])
    i, f, o, g = _parts(values, width)
    f *= cont
    new = f * cell + i * g
    return values, new, o * xp.tanh(new)


def step_back(xp: Any, values: Any, cell: Any, new: Any, d_new: Any, d_out: Any) -> tuple[Any, Any]:
    """(gradient of the gate inputs, gradient of the old cell)."""
    width = cell.shape[-1]
    i, f, o, g = _parts(values, width)
    squashed = xp.tanh(new)
    d_cell = d_new + d_out * o * (1 - squashed * squashed)
    d_gates = xp.empty_like(values)
    d_i, d_f, d_o, d_g = _parts(d_gates, width)
    d_i[...] = d_cell * g * i * (1 - i)
    d_f[...] = d_cell * cell * f * (1 - f)
    d_o[...] = d_out * squashed * o * (1 - o)
    d_g[...] = d_cell * i * (1 - g * g)
    return d_gates, d_cell * f


def _parts(gates: Any, width: int) -> list[Any]:
    return [gates[..., k * width : (k + 1) * width] for k in range(4)]


@dataclass
class Trace:
    """What `unroll` keeps for the way back."""

    hidden: Any  # T x N x D: what the recurrent weights multiplied
    steps: list[tuple[Any, Any, Any]]  # gate values, old cell, new cell
    final: list[Any]  # h and c after the last step


def unroll(xp: Any, sums: Any, cont: Any, recurrent: Any, states: Sequence[Any], out: Any) -> Trace:
    """Write `out` (T x N x D) from the inputs' sums (T x N x 4D) and the states h and c before."""
    hidden, cell = states
    kept, steps = xp.empty(out.shape, out.dtype), []
    for t in range(len(sums)):
        kept[t] = cont[t] * hidden
        gates = sums[t] + kept[t] @ recurrent.T
        values, new, hidden = step(xp, gates, cell, cont[t])
        steps.append((values, cell, new))
        out[t], cell = hidden, new
    return Trace(kept, steps, [hidden, cell])


def unroll_back(
    xp: Any, trace: Trace, cont: Any, recurrent: Any, d_out: Any, bound: float = 0
) -> Any:
    """The gradient of the sums, each step's cut to +-`bound` if that is above 0."""
    d_sums = xp.empty((*d_out.shape[:2], len(recurrent)), d_out.dtype)
    d_hidden = d_cell = xp.zeros(d_out.shape[1:], d_out.dtype)
    for t in reversed(range(len(d_out))):
        values, cell, new = trace.steps[t]
        d_sums[t], d_cell = step_back(xp, values, cell, new, d_cell, d_out[t] + d_hidden)
        if bound > 0:
            d_sums[t] = xp.clip(d_sums[t], -bound, bound)
        d_hidden = cont[t] * (d_sums[t] @ recurrent)
    return d_sums


@register_layer("LSTMUnit")
class LSTMUnit(Layer):
    """c = cont f c_prev + i g and h = o tanh(c), with i, f, o = sigmoid and g = tanh of the gates.

    Bottoms: c_prev (1 x N x D), gate inputs (1 x N x 4D), cont (1 x N). Tops: c and h.
    """

    storage = Storage.FLOAT32
    bottoms = (3, 3)
    tops = (2, 2)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        forbid_in_place(self, bottom, top)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        cell = bottom[0].shape
        if len(cell) != 3 or cell[0] != 1:
            self.fail(f"needs a cell state of 1 x streams x width, got {list(cell)}")
        for blob, want in zip(bottom[1:], ((1, cell[1], 4 * cell[2]), (1, cell[1])), strict=True):
            if blob.shape != want:
                self.fail(
                    f'bottom "{blob.name}" must have shape {list(want)} for a cell state of '
                    f"{list(cell)}, got {list(blob.shape)}"
                )
        for blob in top:
            blob.reshape(*cell)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        cont = bottom[2].data[..., None]
        self._values, new, out = step(self.xp, bottom[1].data, bottom[0].data, cont)
        top[0].data[...], top[1].data[...] = new, out

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[2]:
            self.fail("cannot backpropagate to its sequence indicators (bottom 2)")
        d_gates, d_cell = step_back(
            self.xp, self._values, bottom[0].data, top[0].data, top[0].diff, top[1].diff
        )
        for blob, down, diff in zip(bottom, propagate_down, (d_cell, d_gates), strict=False):
            if down:
                blob.diff[...] = diff

    def allow_force_backward(self, bottom_index: int) -> bool:
        return bottom_index != 2

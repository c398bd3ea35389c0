"""Rows of the recurrent layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.layers.case import Array, Bad, Case, Shape


def continued(rng: np.random.Generator, shape: Shape) -> Array:
    """Sequence indicators: every stream begins at the first step and perhaps again later."""
    cont = rng.integers(0, 2, shape).astype(float)
    cont[:1] = 0
    return cont


def recurrent(extra: str = "") -> str:
    return (
        'recurrent_param { num_output: 4 weight_filler { type: "uniform" min: -0.4 max: 0.4 } '
        f'bias_filler {{ type: "uniform" min: -0.2 max: 0.2 }} {extra} }}'
    )


def of_rows(extra: str = "") -> str:
    return (
        'lstm_param { num_output: 4 weight_filler { type: "uniform" min: -0.4 max: 0.4 } '
        f'bias_filler {{ type: "uniform" min: -0.2 max: 0.2 }} {extra} }}'
    )


def clipped(streams: int) -> Callable[[np.random.Generator, Shape], Array]:
    """An indicator per row of an Lstm layer."""
    return lambda rng, shape: continued(rng, (shape[0] // streams, streams)).reshape(shape)


PLAIN = ((5, 2, 3), (5, 2))
FILL = ("normal", continued)
STATIC = ((5, 2, 3), (5, 2), (2, 2, 3))
STATIC_FILL = ("normal", continued, "normal")
LSTM_HIDDEN = ((3, 2, 3), (3, 2), (1, 2, 4), (1, 2, 4))
ALL_HIDDEN = ((3, 2, 3), (3, 2), (2, 6), (1, 2, 4), (1, 2, 4))

# finite_at leaves out large factors: they would scale the indicators too.
SHARED: dict[str, Any] = {"gradients": (0,), "batch": (0, 1), "finite_at": (0.0,)}
WITH_STATIC: dict[str, Any] = SHARED | {
    "shapes": STATIC, "fill": STATIC_FILL, "gradients": (0, 2)
}  # fmt: skip

WRONG = (
    Bad("num_output must be at least 1, got 0", "recurrent_param { }"),
    Bad(r"steps x streams x values, got \[5, 2\]", shapes=((5, 2), (5, 2))),
    Bad(r"steps x streams \(\[5, 2\]\).*got \[5, 3\]", shapes=((5, 2, 3), (5, 3))),
    Bad(r"2 streams, got \[3, 4\]", shapes=((5, 2, 3), (5, 2), (3, 4)), fill=STATIC_FILL),
    Bad("expects 2 or 3 bottoms, got 1", shapes=((5, 2, 3),)),
    Bad(r"expects 1 top\(s\), got 2", tops=2),
    Bad("unknown filler", 'recurrent_param { num_output: 2 weight_filler { type: "odd" } }'),
)

ROWS = [
    Case("lstm unit", "LSTMUnit", shapes=((1, 2, 4), (1, 2, 16), (1, 2)),
         fill=("normal", "normal", "binary"), tops=2, gradients=(0, 1), batch=(),
         top_shapes=((1, 2, 4), (1, 2, 4)), finite_at=(0.0,), golden=("lstm_unit",),
         bad=(Bad(r'"in1" must have shape \[1, 2, 16\].*got \[1, 2, 12\]',
                  shapes=((1, 2, 4), (1, 2, 12), (1, 2))),
              Bad(r'"in2" must have shape \[1, 2\]', shapes=((1, 2, 4), (1, 2, 16), (1, 3))),
              Bad("1 x streams x width", shapes=((2, 4), (1, 2, 16), (1, 2))))),
    Case("lstm", "LSTM", recurrent(), shapes=PLAIN, fill=FILL, weights=3,
         top_shapes=((5, 2, 4),), golden=("lstm_basic",), bad=WRONG, **SHARED),
    Case("lstm with debug_info", "LSTM", recurrent("debug_info: true"),
         shapes=((2, 3, 2, 2), (2, 3)), fill=FILL, weights=3, top_shapes=((2, 3, 4),), **SHARED),
    Case("lstm with static input", "LSTM", recurrent(), weights=4, **WITH_STATIC),
    Case("lstm with hidden states", "LSTM", recurrent("expose_hidden: true"), shapes=LSTM_HIDDEN,
         fill=("normal", continued, "normal", "normal"), tops=3, gradients=(), learned=(),
         weights=3, top_shapes=((3, 2, 4), (1, 2, 4), (1, 2, 4)), batch=(0, 1),
         finite_at=(0.0,),
         bad=(Bad("expects 4 or 5 bottoms with expose_hidden, got 3", shapes=LSTM_HIDDEN[:3]),
              Bad(r"expects 3 top\(s\) with expose_hidden, got 1", tops=1),
              Bad(r'hidden state "in3" must have shape \[1, 2, 4\], got \[1, 2, 5\]',
                  shapes=(*LSTM_HIDDEN[:3], (1, 2, 5))))),
    Case("lstm with everything", "LSTM", recurrent("expose_hidden: true"), shapes=ALL_HIDDEN,
         fill=("normal", continued, "normal", "normal", "normal"), tops=3, gradients=(),
         learned=(), weights=4, batch=(0, 1), finite_at=(0.0,)),
    Case("lstm of rows", "Lstm", of_rows(), shapes=((5, 3),), weights=3, top_shapes=((5, 4),),
         mixes_samples=True,
         bad=(Bad("num_output must be at least 1, got 0", "lstm_param { }"),
              Bad("batch_size must be at least 1, got 0", of_rows("batch_size: 0")),
              Bad("clipping_threshold must not be negative, got -1",
                  of_rows("clipping_threshold: -1")),
              Bad(r'steps of 2 streams \(batch_size\), got 5 in "in0"', of_rows("batch_size: 2")),
              Bad(r'must hold 5 numbers, one per row.*got "in1" \[4\]', shapes=((5, 3), (4,))),
              Bad("unknown filler", 'lstm_param { num_output: 2 weight_filler { type: "odd" } }'),
              Bad("cannot run in place", in_place=True))),
    Case("lstm of rows in streams", "Lstm", of_rows("batch_size: 2"), shapes=((6, 3, 1, 2), (6, 1)),
         fill=("normal", clipped(2)), gradients=(0,), weights=3, top_shapes=((6, 4),),
         batch=(), finite_at=(0.0,)),
    Case("lstm of steps of streams", "Lstm", of_rows(), shapes=((4, 2, 3),), weights=3,
         top_shapes=((4, 2, 4),), mixes_samples=True),
    Case("rnn", "RNN", recurrent(), shapes=PLAIN, fill=FILL, weights=5,
         top_shapes=((5, 2, 4),), golden=("rnn_basic",), bad=WRONG, **SHARED),
    Case("rnn with static input", "RNN", recurrent(), weights=6, **WITH_STATIC),
    Case("rnn with hidden state", "RNN", recurrent("expose_hidden: true"), shapes=LSTM_HIDDEN[:3],
         fill=("normal", continued, "normal"), tops=2, gradients=(), learned=(), weights=5,
         top_shapes=((3, 2, 4), (1, 2, 4)), batch=(0, 1), finite_at=(0.0,)),
]  # fmt: skip

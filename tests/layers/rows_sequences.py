"""Rows of the layers for sequences without a given alignment (CRNN)."""

from __future__ import annotations

import numpy as np

from tests.layers.case import Array, Bad, Case, Fill, Shape


def labels(rng: np.random.Generator, shape: Shape) -> Array:
    """Classes 1 to 3, with repetitions; the last place is empty."""
    made = rng.integers(1, 4, shape).astype(float)
    made[..., -1] = -1
    return made


def in_time(rng: np.random.Generator, shape: Shape) -> Array:
    """The same, one sample a column."""
    return labels(rng, shape[::-1]).T


def begins(rng: np.random.Generator, shape: Shape) -> Array:
    """Sequences from the first moment to the last but one."""
    made = np.ones(shape)
    made[0] = made[-1] = 0
    return made


def lengths(rng: np.random.Generator, shape: Shape) -> Array:
    return np.full(shape, 6.0)


def counts(rng: np.random.Generator, shape: Shape) -> Array:
    return np.full(shape, 2.0)


def same(value: float) -> Fill:
    return lambda rng, shape: np.full(shape, value)


CTC = "ctc_loss_param { blank_index: 0 }"
ROWS = [
    Case("warp ctc", "WarpCTC", shapes=((7, 3, 5), (3, 4)), fill=("normal", labels),
         gradients=(0,), batch=(), top_shapes=((),),
         bad=(Bad("time x batch x classes, got \"in0\" \\[7, 3\\]", shapes=((7, 3), (3, 4))),
              Bad("time x batch x classes", shapes=((7, 3, 5, 2), (3, 4))),
              Bad("batch of 3, got \"in1\" \\[4, 3\\]", shapes=((7, 3, 5), (4, 3))),
              Bad("blank label 5 is not one of the 5", "warp_ctc_param { blank_label: 5 }"),
              Bad("label 5 of sample 0 .* is not a class", fill=("normal", same(5))),
              Bad("label 1.5 of sample 0", fill=("normal", same(1.5))),
              Bad("2 bottoms, got 3", shapes=((7, 3, 5), (7, 3), (4, 3))))),
    Case("warp ctc with an axis of 1", "WarpCTC", "warp_ctc_param { blank_label: 4 }",
         shapes=((5, 2, 5, 1), (2, 3, 1, 1)), fill=("normal", labels), gradients=(0,), batch=()),
    Case("ctc with indicators", "CTCLoss", CTC, shapes=((8, 2, 5), (8, 2), (4, 2)),
         fill=("normal", begins, in_time), gradients=(0,), batch=(),
         bad=(Bad("an indicator per moment \\(16\\), got \"in1\" \\[7, 2\\]",
                  shapes=((8, 2, 5), (7, 2), (4, 2))),
              Bad("labels x batch with a batch of 2", shapes=((8, 2, 5), (8, 2), (2, 4))),
              Bad("time_step is 9, but \"in0\" has 8", "ctc_loss_param { time_step: 9 }"),
              Bad("alphabet_size is 9, but \"in0\" has 5",
                  "ctc_loss_param { alphabet_size: 9 }"),
              Bad("0 to 4\\), of which 4 is the blank", "", fill=("normal", begins, same(4))))),
    Case("ctc with lengths", "CTCLoss", CTC, shapes=((8, 2, 5), (2,), (2,), (4, 2)),
         fill=("normal", lengths, counts, in_time), gradients=(0,), batch=(),
         bad=(Bad("a length per sample \\(2\\)", shapes=((8, 2, 5), (3,), (2,), (4, 2))),
              Bad("lengths from 0 to 8, got 9 for sample 0",
                  fill=("normal", same(9), counts, in_time)))),
    Case("warp ctc loss", "WarpCTCLoss", "ctc_loss_param { blank_index: 0 }",
         shapes=((5, 2, 4), (2, 3)), fill=("normal", labels), gradients=(0,), batch=()),
    Case("ctc of two bottoms", "CtcLoss", "ctc_loss_param { blank_label: 0 alphabet_size: 5 }",
         shapes=((7, 3, 5), (3, 4)), fill=("normal", labels), gradients=(0,), batch=()),
    Case("greedy decoder", "CTCGreedyDecoder", "ctc_decoder_param { blank_index: 0 }",
         shapes=((7, 3, 5),), gradients=(), batch=(), top_shapes=((7, 3),),
         bad=(Bad("time x batch x classes", shapes=((7, 3),)),
              Bad("blank label 5 is not one of the 5", "ctc_decoder_param { blank_index: 5 }"),
              Bad("the accuracy, needs labels", tops=2))),
    Case("greedy decoder with labels", "CTCGreedyDecoder", shapes=((7, 3, 5), (7, 3), (4, 3)),
         fill=("normal", begins, in_time), gradients=(), batch=(), tops=2,
         top_shapes=((7, 3), ()),
         bad=(Bad("an indicator per moment", shapes=((7, 3, 5), (7, 2), (4, 3))),
              Bad("a batch of 3", shapes=((7, 3, 5), (7, 3), (3, 4))))),
    Case("continuation indicator", "ContinuationIndicator", shapes=((5, 2, 3),), gradients=(),
         batch=(), top_shapes=((5, 2),), bad=(Bad("needs a bottom of time x batch",
                                                  shapes=((5,),)),)),
    Case("continuation indicator alone", "ContinuationIndicator",
         "continuation_indicator_param { time_step: 4 batch_size: 3 }", shapes=(),
         top_shapes=((4, 3),),
         bad=(Bad("or time_step and batch_size; got \\[4, 0\\]",
                  "continuation_indicator_param { time_step: 4 }"),)),
]  # fmt: skip

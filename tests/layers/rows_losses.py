"""Rows of the losses but SoftmaxWithLoss."""

from __future__ import annotations

import numpy as np

from tests.layers.case import Array, Bad, Case, Fill, Shape


def pairs(rng: np.random.Generator, shape: Shape) -> Array:
    """Both kinds of pairs, whatever the batch."""
    return np.arange(np.prod(shape)).reshape(shape) % 2.0


def close(rng: np.random.Generator, shape: Shape) -> Array:
    return 0.2 * rng.normal(size=shape)


def same(value: float) -> Fill:
    return lambda rng, shape: np.full(shape, value)


ROWS = [
    Case(
        "contrastive_legacy",
        "ContrastiveLoss",
        "contrastive_loss_param { margin: 2 legacy_version: true }",
        shapes=((5, 3), (5, 3), (5,)),
        fill=(close, close, pairs),
        gradients=(0, 1),
        mixes_samples=True,
        top_shapes=((),),
        golden=("loss_contrastive*",),
        bad=(
            Bad("must have one shape", shapes=((5, 3), (5, 2), (5,))),
            Bad("one vector per sample", shapes=((5, 3, 2), (5, 3, 2), (5,))),
            Bad(r"one label per pair \(5\)", shapes=((5, 3), (5, 3), (4,))),
            Bad("same first dimension", shapes=((5, 3), (4, 3), (5,))),
        ),
    ),
    Case(
        "contrastive_similar",
        "ContrastiveLoss",
        shapes=((4, 3, 1, 1), (4, 3, 1, 1), (4, 1)),
        fill=("normal", "normal", same(1)),
        gradients=(0, 1),
    ),
    Case(
        "contrastive_far_apart",
        "ContrastiveLoss",
        "contrastive_loss_param { margin: 0.01 }",
        shapes=((4, 3), (4, 3), (4,)),
        fill=("normal", "normal", same(0)),
        gradients=(0, 1),
    ),
    Case(
        "euclidean",
        "EuclideanLoss",
        shapes=((4, 3, 2), (4, 6)),
        top_shapes=((),),
        golden=("loss_euclidean*",),
        bad=(
            Bad("as many numbers per sample", shapes=((4, 3), (4, 2))),
            Bad("same first dimension", shapes=((4, 3), (2, 6))),
            Bad("expects 2 bottoms, got 1", shapes=((4, 3),)),
        ),
    ),
    Case(
        "hinge_l1",
        "HingeLoss",
        shapes=((5, 4), (5,)),
        fill=("normal", "labels 4"),
        kinks=(1.0, -1.0),
        top_shapes=((),),
        golden=("loss_hinge*",),
        bad=(
            Bad("label 4 of sample 0 .* there are 4", fill=("normal", same(4))),
            Bad("label -1 of sample 0", fill=("normal", same(-1))),
            Bad("one label per prediction", shapes=((5, 4), (5, 2))),
        ),
    ),
    Case(
        "hinge_l2",
        "HingeLoss",
        "hinge_loss_param { norm: L2 }",
        shapes=((3, 2, 2, 1), (3, 1)),
        fill=("normal", "labels 4"),
        kinks=(1.0, -1.0),
    ),
    Case(
        "infogain",
        "InfogainLoss",
        shapes=((5, 4), (5,), (4, 4)),
        fill=("normal", "labels 4", "unit"),
        gradients=(0,),
        batch=(0, 1),
        top_shapes=((),),
        golden=("loss_infogain*",),
        bad=(
            Bad("must be 4 x 4, got 9", shapes=((5, 4), (5,), (3, 3))),
            Bad("label 7 of sample 0", fill=("normal", same(7), "unit")),
            Bad("normalize is too old", "loss_param { normalize: true }"),
            Bad("third bottom or as a file", shapes=((5, 4), (5,))),
            Bad("axis: axis 2 out of range", "infogain_loss_param { axis: 2 }"),
            Bad(
                "cannot read the infogain matrix: .*no_such",
                'infogain_loss_param { source: "no_such.binaryproto" }',
                shapes=((5, 4), (5,)),
            ),
        ),
    ),
    Case(
        "infogain_spatial",
        "InfogainLoss",
        "infogain_loss_param { axis: 2 } loss_param { ignore_label: 1 normalization: FULL }",
        shapes=((2, 2, 4, 3), (2, 2, 3), (1, 1, 4, 4)),
        fill=("normal", "labels 4", "unit"),
        gradients=(0,),
        batch=(0, 1),
    ),
    Case(
        "multinomial",
        "MultinomialLogisticLoss",
        shapes=((5, 4), (5,)),
        fill=("unit", "labels 4"),
        top_shapes=((),),
        golden=("loss_multinomial*",),
        finite_at=(0.0, 1.0),
        bad=(
            Bad("label 9 of sample 0", fill=("unit", same(9))),
            Bad("one label per prediction", shapes=((5, 4), (5, 4))),
        ),
    ),
    Case(
        "sigmoid_cross_entropy",
        "SigmoidCrossEntropyLoss",
        shapes=((4, 5), (4, 5)),
        fill=("normal", "unit"),
        gradients=(0,),
        top_shapes=((),),
        golden=("loss_sigmoid*",),
        bad=(Bad("one target per score", shapes=((4, 5), (4, 4))),),
    ),
    *(
        Case(
            f"sigmoid_cross_entropy_{mode.lower()}",
            "SigmoidCrossEntropyLoss",
            f"loss_param {{ ignore_label: 1 normalization: {mode} pre_fixed_normalizer: 8 }}",
            shapes=((4, 5), (4, 5)),
            fill=("normal", "binary"),
            gradients=(0,),
        )
        for mode in ("FULL", "VALID", "BATCH_SIZE", "NONE", "PRE_FIXED")
    ),
    Case(
        "smooth_l1",
        "SmoothL1Loss",
        "smooth_l1_loss_param { sigma: 1.5 }",
        shapes=((4, 3), (4, 3)),
        top_shapes=((),),
        bad=(
            Bad("sigma must be positive", "smooth_l1_loss_param { sigma: 0 }"),
            Bad("must have one shape", shapes=((4, 3), (4, 2))),
            Bad("must have one shape", shapes=((4, 3), (4, 3), (4, 1), (4, 3))),
        ),
    ),
    Case(
        "smooth_l1_weighted",
        "SmoothL1Loss",
        "smooth_l1_loss_param { sigma: 3 }",
        shapes=((4, 2, 2, 2),) * 4,
        fill=("normal", "normal", "positive", "positive"),
        gradients=(0, 1),
    ),
]

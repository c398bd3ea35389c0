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


def yolo_objects(rng: np.random.Generator, shape: Shape) -> Array:
    """Two objects in each image, and a row that ends them."""
    rows = [[1, 0.3, 0.4, 0.2, 0.3], [0, 0.7, 0.6, 0.5, 0.3], [0, 0, 0, 0, 0]]
    return np.tile(np.array(rows).reshape(1, -1), (shape[0], 1)).reshape(shape)


def ssd_objects(rng: np.random.Generator, shape: Shape) -> Array:
    rows = [[0, 2, 0, 0.2, 0.25, 0.4, 0.55, 0], [1, 1, 0, 0.45, 0.45, 0.95, 0.75, 0]]
    return np.array([*rows, [-1] * 8], float).reshape(shape)


def region(more: str = "") -> str:
    return (
        "region_loss_param { num_class: 2 num: 2 biases: 0.8 biases: 1.1 biases: 2 biases: 1.5 "
        f"thresh: 0.3 {more} }}"
    )


SCORES = (2, 14, 4, 5)
REGIONS = [
    Case("region", "RegionLoss", region(), shapes=(SCORES, (2, 3, 5)),
         fill=("normal", yolo_objects), gradients=(0,), top_shapes=((),), numeric=False,
         finite_at=(0.0, 3.0),
         bad=(Bad("coords must be 4", region("coords: 5")),
              Bad("for each of num: 2 anchors, got \\[1.0\\]",
                  "region_loss_param { num: 2 biases: 1 }"),
              Bad("= 14 channels, but \"in0\" has 12", shapes=((2, 12, 4, 5), (2, 3, 5))),
              Bad("side is 13, but", region("side: 13")),
              Bad("rows of class, x, y, w, h for each of the 2 images",
                  shapes=(SCORES, (2, 4)), fill=("normal", same(0))),
              Bad("image 0 .* makes no sense.*class of 0 to 1",
                  fill=("normal", same(2))),
              Bad("centre x and y from 0 to 1", fill=("normal", same(1))))),
    Case("region_of_predicted_sizes", "RegionLoss", region("bias_match: 0 coord_scale: 2"),
         shapes=(SCORES, (2, 3, 5)), fill=("normal", yolo_objects), gradients=(0,), numeric=False,
         phase="TEST", finite_at=(0.0, 3.0)),
    Case("region_of_annotated_data", "RegionLoss", region("noobject_scale: 1 class_scale: 3"),
         shapes=(SCORES, (1, 1, 3, 8)), fill=("normal", ssd_objects), gradients=(0,),
         batch=(), numeric=False, finite_at=(0.0, 3.0)),
]  # fmt: skip

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
    Case(
        "triplet",
        "TripletLoss",
        "triplet_loss_param { margin: 0.4 }",
        shapes=((5, 3),) * 3,
        fill=(close,),
        mixes_samples=True,
        top_shapes=((),),
        bad=(
            Bad("must have one shape", shapes=((5, 3), (5, 3), (5, 2))),
            Bad("same first dimension", shapes=((5, 3), (4, 3), (5, 3))),
            Bad("one vector per sample", shapes=((5,),) * 3),
            Bad(r"one weight per triplet \(5\)", shapes=((5, 3), (5, 3), (5, 3), (4,))),
            Bad("3 to 4 bottoms, got 2", shapes=((5, 3), (5, 3))),
        ),
    ),
    Case(
        "triplet_weighted",
        "TripletLoss",
        shapes=((4, 3, 2, 1),) * 3 + ((4, 1),),
        fill=(close, close, close, "positive"),
        gradients=(0, 1, 2),
    ),
    Case(
        "center",
        "CenterLoss",
        'center_loss_param { num_output: 4 center_filler { type: "xavier" } }',
        shapes=((6, 3), (6,)),
        fill=("normal", "labels 4"),
        weights=1,
        learned=(),  # centres move by a rule of their own: see the row below and test_losses.py
        top_shapes=((),),
        bad=(
            Bad("needs num_output", "center_loss_param { }"),
            Bad("label 4 of sample 0 .* there are 4", fill=("normal", same(4))),
            Bad("axis: axis 2 out of range", "center_loss_param { num_output: 4 axis: 2 }"),
            Bad("one label per prediction", shapes=((6, 3), (6, 2)), fill=("normal", same(0))),
        ),
    ),
    Case(
        "center_of_pixels",
        "CenterLoss",
        "center_loss_param { num_output: 3 axis: 2 }",
        shapes=((2, 3, 4), (2, 3)),
        fill=("normal", "labels 3"),
        weights=1,
        numeric=False,
    ),
    Case(
        "l1",
        "L1Loss",
        shapes=((4, 3), (4, 3)),
        top_shapes=((),),
        bad=(
            Bad("must have one shape", shapes=((4, 3), (4, 2))),
            Bad("must not be negative, got -1 and 0", "l1_loss_param { epsilon: -1 }"),
            Bad(
                "needs a channel axis",
                "l1_loss_param { l2_per_location: true }",
                shapes=((4,), (4,)),
            ),
        ),
    ),
    Case("l1_of_one_bottom", "L1Loss", shapes=((4, 3, 2),), kinks=(0,)),
    Case(
        "l1_beyond_a_plateau",
        "L1Loss",
        "l1_loss_param { plateau: 0.5 }",
        shapes=((5, 4),),
        kinks=(-0.5, 0.5),
    ),
    Case(
        "l1_of_lengths",
        "L1Loss",
        "l1_loss_param { l2_per_location: true normalize_by_num_entries: true epsilon: 0.1 }",
        shapes=((2, 3, 4, 5),) * 2,
    ),
    Case(
        "l1_of_mean_lengths",
        "L1Loss",
        "l1_loss_param { l2_per_location: true l2_prescale_by_channels: true plateau: 0.1 }",
        shapes=((2, 3, 4),) * 2,
    ),
    Case(
        "focal",
        "SoftmaxWithFocalLoss",
        shapes=((6, 4), (6,)),
        fill=("normal", "labels 4"),
        top_shapes=((),),
        bad=(
            Bad("gamma must not be negative, got -1", "softmax_focal_loss_param { gamma: -1 }"),
            Bad("go with SoftmaxWithLoss only", "loss_param { label_smoothing: 0.1 }"),
            Bad("label 9 of sample 0", fill=("normal", same(9))),
        ),
    ),
    Case(
        "focal_of_pixels",
        "SoftmaxWithFocalLoss",
        "softmax_focal_loss_param { alpha: 0.75 gamma: 0.5 } softmax_param { axis: 2 } "
        "loss_param { ignore_label: 1 normalization: VALID }",
        shapes=((2, 2, 4, 3), (2, 2, 3)),
        fill=("normal", "labels 4"),
        tops=2,
        top_gradients=(0,),
        top_shapes=((), (2, 2, 4, 3)),
    ),
    *REGIONS,
]

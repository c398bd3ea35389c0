"""Rows of the detection layers: regions (R-CNN, R-FCN) and SSD's boxes."""

from __future__ import annotations

import numpy as np

from pycaffe_fire.errors import PrototxtError
from tests.layers.case import Array, Bad, Case, Fill, Shape


def fixed(values: Array) -> Fill:
    """These values, cut to the first sample for a batch of one."""
    return lambda rng, shape: np.resize(np.asarray(values, float), shape)


def regions(rng: np.random.Generator, shape: Shape) -> Array:
    """Inside, at the border, partly and wholly outside, and a single pixel; all of image 0."""
    rows = [
        [0, 0, 0, 9, 7],
        [0, 3, 2, 12, 14],
        [0, -6, -5, 3, 3],
        [0, 40, 40, 50, 50],
        [0, 4, 4, 4, 4],
    ]
    return np.resize(np.array(rows, float), shape)


def priors(count: int) -> Array:
    """Overlapping boxes with variances, as PriorBox writes them."""
    rng = np.random.default_rng(5)
    low = rng.uniform(0, 0.5, (count, 2))
    boxes = np.concatenate([low, low + rng.uniform(0.2, 0.45, (count, 2))], axis=1)
    variances = np.tile([0.1, 0.1, 0.2, 0.2], (count, 1))
    return np.stack([boxes.reshape(-1), variances.reshape(-1)])[None]


OBJECTS = np.array(
    [
        [0, 1, 0, 0.1, 0.1, 0.5, 0.6, 0],
        [0, 2, 0, 0.4, 0.3, 0.9, 0.9, 0],
        [1, 2, 0, 0.2, 0.2, 0.6, 0.7, 1],
        [-1, 0, 0, 0, 0, 0, 0, 0],
    ]
)
FOUND = np.array(
    [
        [0, 1, 0.9, 0.1, 0.1, 0.5, 0.6],
        [0, 1, 0.8, 0.5, 0.5, 0.9, 0.9],
        [1, 2, 0.7, 0.2, 0.2, 0.6, 0.6],
        [-1, 0, 0, 0, 0, 0, 0],
    ]
)


def objects(row: list[float]) -> tuple[Fill, ...]:
    return ("normal", "normal", fixed(priors(6)), fixed(np.array([row])))


ONE = ((2, 24), (2, 18), (1, 2, 24), (1, 1, 1, 8))  # six priors, three classes, one object


def multibox(extra: str = "", classes: int = 3, code: str = "CENTER_SIZE") -> str:
    return f"multibox_loss_param {{ num_classes: {classes} code_type: {code} {extra} }}"


def ssd_loss(name: str, params: str, classes: int = 3, locations: int = 1, **more: object) -> Case:
    return Case(
        name,
        "MultiBoxLoss",
        params,
        shapes=((2, 24 * locations), (2, 6 * classes), (1, 2, 24), (1, 1, 4, 8)),
        fill=("normal", "normal", fixed(priors(6)), fixed(OBJECTS)),
        gradients=(0, 1),
        batch=(),
        top_shapes=((),),
        finite_at=(),
        **more,  # type: ignore[arg-type]
    )


def detections(extra: str = "") -> str:
    return (
        "detection_output_param { num_classes: 3 code_type: CENTER_SIZE "
        f"nms_param {{ nms_threshold: 0.45 top_k: 5 }} {extra} }}"
    )


NMS = "detection_output_param { num_classes: 3 nms_param { %s } }"
ROI = "roi_pooling_param { pooled_h: 3 pooled_w: 2 spatial_scale: 0.5 }"
ALIGN = "roi_align_param { pooled_h: 3 pooled_w: 2 %s }"
PROPOSAL = (
    "proposal_param { base_size: 8 feat_stride: 16 min_size: 4 ratio: 1 ratio: 2 scale: 2 %s }"
)
PSROI = "psroi_pooling_param { output_dim: 2 group_size: 2 spatial_scale: %g }"
SSD = ((2, 24), (2, 18), (1, 2, 24))
IMAGE = ((1, 2, 3, 4), (1, 3, 30, 40))

ROWS = [
    Case("roi pooling", "ROIPooling", ROI, shapes=((1, 3, 6, 7), (5, 5)),
         fill=("distinct", regions), gradients=(0,), batch=(1,), top_shapes=((5, 3, 3, 2),),
         finite_at=(0.0,),
         bad=(Bad("pooled_h and pooled_w must be at least 1, got \\[3, 0\\]",
                  "roi_pooling_param { pooled_h: 3 }"),
              Bad("spatial_scale must be positive",
                  "roi_pooling_param { pooled_size: 2 spatial_scale: 0 }"),
              Bad("pooled_size must be one or two",
                  "roi_pooling_param { pooled_size: 2 pooled_size: 2 pooled_size: 2 }"),
              Bad("rows of 5", shapes=((1, 3, 6, 7), (5, 4)), fill=("normal",)),
              Bad("needs a bottom with 4 axes", shapes=((1, 3, 6), (5, 5))),
              Bad("region 0 .* images 0 to 0",
                  fill=("normal", fixed(np.array([1.0, 0, 0, 4, 4])))),
              Bad("region 0 .* makes no sense",
                  fill=("normal", fixed(np.array([0, np.nan, 0, 4, 4])))))),
    Case("roi pooling, one size", "ROIPooling", "roi_pooling_param { pooled_size: 4 }",
         shapes=((1, 2, 5, 5), (5, 5)), fill=("distinct", regions), gradients=(0,), batch=(1,),
         top_shapes=((5, 2, 4, 4),), finite_at=(0.0,)),
    Case("psroi pooling", "PSROIPooling", PSROI % 0.5, shapes=((1, 8, 6, 7), (5, 5)),
         fill=("normal", regions), gradients=(0,), batch=(1,), top_shapes=((5, 2, 2, 2),),
         finite_at=(0.0,),
         bad=(Bad("8 channels, but \"in0\" has 6", shapes=((1, 6, 6, 7), (5, 5))),
              Bad("at least 1, got 2 and 0",
                  "psroi_pooling_param { output_dim: 2 group_size: 0 spatial_scale: 1 }"),
              Bad("spatial_scale must be positive", PSROI % -1),
              Bad("output_dim", "psroi_pooling_param { group_size: 1 spatial_scale: 1 }",
                  error=PrototxtError),
              Bad("rows of 5", shapes=((1, 8, 6, 7), (5, 2))))),
    Case("roi align", "ROIAlign", ALIGN % "", shapes=((1, 3, 6, 7), (5, 5)),
         fill=("normal", regions), gradients=(0,), batch=(1,), top_shapes=((5, 3, 3, 2),),
         finite_at=(0.0,),
         bad=(Bad("pooled_h and pooled_w must be at least 1, got \\[3, 0\\]",
                  "roi_align_param { pooled_h: 3 }"),
              Bad("spatial_scale must be positive", ALIGN % "spatial_scale: 0"),
              Bad("roi_end_mode must be 0 or 1, got 2", ALIGN % "roi_end_mode: 2"),
              Bad("rows of 5", shapes=((1, 3, 6, 7), (5, 4)), fill=("normal",)),
              Bad("needs a bottom with 4 axes", shapes=((1, 3, 6), (5, 5))),
              Bad("region 0 .* images 0 to 0",
                  fill=("normal", fixed(np.array([1.0, 0, 0, 4, 4])))))),
    Case("roi align, given points", "ROIAlign",
         ALIGN % "sampling_ratio: 2 roi_end_mode: 1 spatial_scale: 0.25",
         shapes=((1, 2, 5, 4), (5, 5)), fill=("normal", regions), gradients=(0,), batch=(1,),
         finite_at=(0.0,)),
    Case("proposal", "Proposal", PROPOSAL % "",
         shapes=((1, 4, 3, 4), (1, 8, 3, 4), (1, 3)),
         fill=("unit", lambda rng, shape: 0.3 * rng.normal(size=shape),
               fixed(np.array([40.0, 60, 1]))), gradients=(), batch=(), tops=2,
         bad=(Bad("must be positive", PROPOSAL % "scale: 0"),
              Bad("topn must be at least 1, got 6000 and 0", PROPOSAL % "post_nms_topn: 0"),
              Bad("for each of 2 anchors, got", shapes=((1, 2, 3, 4), (1, 8, 3, 4), (1, 3))),
              Bad("for each of 2 anchors, got", shapes=((1, 4, 3, 4), (1, 8, 3, 3), (1, 3))),
              Bad("height, width and scale of each of 1", shapes=((1, 4, 3, 4), (1, 8, 3, 4),
                                                                  (1, 2))))),
    Case("box annotator", "BoxAnnotatorOHEM", "box_annotator_ohem_param { roi_per_img: 2 }",
         shapes=((5, 5), (5, 1, 1, 1), (5,), (5, 8, 1, 1)),
         fill=(regions, "distinct", "labels 3", "unit"), gradients=(), batch=(), tops=2,
         top_shapes=((5,), (5, 8, 1, 1)),
         bad=(Bad("roi_per_img must be at least 1", "box_annotator_ohem_param { roi_per_img: 0 }"),
              Bad("rows of 5", shapes=((5, 4), (5,), (5,), (5, 8)), fill=("normal",)),
              Bad("one loss for each of 5 regions", shapes=((5, 5), (4,), (5,), (5, 8))),
              Bad("one label for each of 5 regions", shapes=((5, 5), (5,), (6,), (5, 8))),
              Bad("weights for each of 5 regions", shapes=((5, 5), (5,), (5,), (4, 8))))),
    Case("smooth l1 of regions", "SmoothL1LossOHEM",
         "loss_param { normalization: PRE_FIXED pre_fixed_normalizer: 3 }",
         shapes=((4, 3, 2, 1),) * 3, fill=("normal", "normal", "binary"), gradients=(0, 1),
         tops=2, top_gradients=(0,), top_shapes=((), (4, 1, 2, 1)),
         bad=(Bad("must have one shape", shapes=((4, 3), (4, 2))),
              Bad("at least 2 axes", shapes=((4,), (4,))))),
    Case("smooth l1 of vectors", "SmoothL1LossOHEM", shapes=((4, 3),) * 2, top_shapes=((),)),
    Case("softmax loss of regions", "SoftmaxWithLossOHEM",
         "loss_param { ignore_label: 2 normalization: PRE_FIXED pre_fixed_normalizer: 4 }",
         shapes=((5, 4), (5,)), fill=("normal", "labels 4"), tops=3, top_gradients=(0,),
         top_shapes=((), (5, 4), (5,))),
    Case("prior box", "PriorBox",
         "prior_box_param { min_size: 4.9 max_size: 9 aspect_ratio: 2 aspect_ratio: 1 "
         "clip: true variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 }",
         shapes=IMAGE, gradients=(), batch=(), top_shapes=((1, 2, 192),),
         bad=(Bad("needs min_size", "prior_box_param { }"),
              Bad("at least 1 pixel, got \\[0.0\\]", "prior_box_param { min_size: 0 }"),
              Bad("max_size must be greater than min_size, got 3 and 4",
                  "prior_box_param { min_size: 4 max_size: 3 }"),
              Bad("once per min_size \\(2\\)",
                  "prior_box_param { min_size: 4 min_size: 5 max_size: 9 }"),
              Bad("aspect_ratio must be positive",
                  "prior_box_param { min_size: 4 aspect_ratio: 0 }"),
              Bad("variance must be 1 or 4 positive",
                  "prior_box_param { min_size: 4 variance: 1 variance: 1 }"),
              Bad("variance must be", "prior_box_param { min_size: 4 variance: 0 }"),
              Bad("give img_size, or both img_h and img_w; got img_h",
                  "prior_box_param { min_size: 4 img_h: 3 }"),
              Bad("give step, or both", "prior_box_param { min_size: 4 step: 3 step_w: 2 }"),
              Bad("step must be positive", "prior_box_param { min_size: 4 step: 0 }"),
              Bad("4 axes", shapes=((1, 2, 3), (1, 3, 30, 40))),
              Bad("no pixels", shapes=((1, 2, 0, 4), (1, 3, 30, 40))))),
    Case("prior box, given sizes", "PriorBox",
         "prior_box_param { min_size: 4 min_size: 8 aspect_ratio: 3 flip: false img_size: 32 "
         "step_h: 4 step_w: 5 offset: 0 }",
         shapes=((1, 2, 3, 4), (1, 1)), gradients=(), batch=(), top_shapes=((1, 2, 192),)),
    Case("detection output", "DetectionOutput", detections("keep_top_k: 4"), shapes=SSD,
         fill=("normal", "normal", fixed(priors(6))), gradients=(), batch=(0, 1),
         top_shapes=((1, 1, 1, 7),), finite_at=(0.0,),
         bad=(Bad("num_classes must be at least 1", "detection_output_param { }"),
              Bad("nms_threshold must not be negative", NMS % "nms_threshold: -1"),
              Bad("eta must be above 0", NMS % "eta: 0"),
              Bad('"in1" must hold 3 values for each of 6 priors: 2 x 18, got \\[2, 12\\]',
                  shapes=((2, 24), (2, 12), (1, 2, 24))),
              Bad('"in0" must hold 4 values', shapes=((2, 20), (2, 18), (1, 2, 24))),
              Bad("must be 1 x 2 x", shapes=((2, 24), (2, 18), (2, 24))),
              Bad("prior 0 in .* is empty", fill=("normal", "normal", "binary")))),
    Case("detection output per class", "DetectionOutput",
         detections("share_location: false confidence_threshold: 0.2 keep_top_k: 3"),
         shapes=((2, 72), (2, 18), (1, 2, 24), (2, 3, 8, 8)),
         fill=("normal", "unit", fixed(priors(6)), "normal"), gradients=(), batch=(0, 1, 3),
         finite_at=(0.0,)),
    Case("detection output of two stages", "DetectionOutput",
         detections("keep_top_k: 4 objectness_score: 0.5"),
         shapes=(*SSD, (2, 12), (2, 24)),
         fill=("normal", "unit", fixed(priors(6)), "unit", "normal"), gradients=(),
         batch=(0, 1, 3, 4), finite_at=(0.0,),
         bad=(Bad("objectness_score needs the confidences", shapes=SSD,
                  fill=("normal", "normal", fixed(priors(6)))),
              Bad('"in3" must hold 2 values for each of 6 priors: 2 x 12, got \\[2, 6\\]',
                  shapes=(*SSD, (2, 6), (2, 24))),
              Bad('"in4" must hold 4 values for each of 6 priors: 2 x 24, got \\[2, 20\\]',
                  shapes=(*SSD, (2, 12), (2, 20))))),
    Case("detection evaluate", "DetectionEvaluate", "detection_evaluate_param { num_classes: 3 }",
         shapes=((1, 1, 4, 7), (1, 1, 4, 8)), fill=(fixed(FOUND), fixed(OBJECTS)), gradients=(),
         batch=(), top_shapes=((1, 1, 6, 5),), phase="TEST",
         bad=(Bad("num_classes must be at least 1", "detection_evaluate_param { }"),
              Bad("overlap_threshold must be positive",
                  "detection_evaluate_param { num_classes: 2 overlap_threshold: 0 }"),
              Bad("name_size_file none.txt cannot be read: .*without name_size_file",
                  "detection_evaluate_param { num_classes: 2 name_size_file: 'none.txt' }"),
              Bad('"in0" must be 1 x 1 x count x 7',
                  shapes=((1, 1, 4, 8), (1, 1, 4, 8)), fill=("normal",)))),
    ssd_loss("multibox loss", multibox(), bad=(
        Bad("num_classes must be at least 1", "multibox_loss_param { }"),
        Bad("do_neg_mining contradicts mining_type", multibox("do_neg_mining: false")),
        Bad("mining needs share_location", multibox("share_location: false")),
        Bad("sample_size must be at least 1",
            multibox("mining_type: HARD_EXAMPLE sample_size: 0")),
        Bad("neg_pos_ratio must not be negative", multibox("neg_pos_ratio: -1")),
        Bad("background_label_id 3 is not one of 3", multibox("background_label_id: 3")),
        Bad("map_object_to_agnostic needs", multibox("map_object_to_agnostic: true")),
        Bad("objects must be 1 x 1 x count x 8",
            shapes=((2, 24), (2, 18), (1, 2, 24), (1, 1, 4, 7)), fill=("normal",)),
        Bad("object .* makes no sense: .* image of 0 to 1", shapes=ONE,
            fill=objects([2, 1, 0, 0.1, 0.1, 0.5, 0.5, 0])),
        Bad("class of 0 to 2 that is not the background \\(0\\)", shapes=ONE,
            fill=objects([0, 0, 0, 0.1, 0.1, 0.5, 0.5, 0])),
        Bad("class of 0 to 2", shapes=ONE, fill=objects([0, 3, 0, 0.1, 0.1, 0.5, 0.5, 0])),
        Bad("a box xmin < xmax", shapes=ONE, fill=objects([0, 1, 0, 0.5, 0.1, 0.5, 0.5, 0])),
    )),
    ssd_loss("multibox loss, logistic and L2",
             multibox("conf_loss_type: LOGISTIC loc_loss_type: L2 loc_weight: 2")),
    ssd_loss("multibox loss, logistic without mining",
             multibox("conf_loss_type: LOGISTIC mining_type: NONE")),
    ssd_loss("multibox loss, bipartite, per batch",
             multibox("match_type: BIPARTITE", code="CORNER")
             + " loss_param { normalization: BATCH_SIZE }"),
    ssd_loss("multibox loss, a location per class",
             multibox("share_location: false mining_type: NONE", code="CORNER_SIZE"),
             locations=3),
    ssd_loss("multibox loss, class by class from predictions",
             multibox("share_location: false mining_type: NONE use_prior_for_matching: false "
                      "overlap_threshold: 0.3"), locations=3),
    ssd_loss("multibox loss, hard examples with nms",
             multibox("mining_type: HARD_EXAMPLE sample_size: 3 "
                      "nms_param { nms_threshold: 0.6 top_k: 5 }")),
    ssd_loss("multibox loss, nms of predictions",
             multibox("nms_param { nms_threshold: 0.2 } use_prior_for_nms: true neg_overlap: 0.9")),
    ssd_loss("multibox loss, easy objects inside the image only",
             multibox("use_difficult_gt: false ignore_cross_boundary_bbox: true bp_inside: true")),
    ssd_loss("multibox loss, any object",
             multibox("map_object_to_agnostic: true", classes=2), classes=2),
]  # fmt: skip

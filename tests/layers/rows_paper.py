"""Rows of the layers that the paper's nets are made of."""

from __future__ import annotations

import numpy as np

from pycaffe_fire.errors import NetError, PrototxtError
from tests.layers.case import Array, Bad, Case, Shape


def with_ties(rng: np.random.Generator, shape: Shape) -> Array:
    """Few different values, so that windows hold several equal maxima."""
    return rng.integers(-1, 3, shape).astype(float)


def with_ignored(rng: np.random.Generator, shape: Shape) -> Array:
    """Labels 0 to 4, of which a row ignores 2."""
    return np.where(rng.uniform(size=shape) < 0.4, 2, rng.integers(0, 5, shape)).astype(float)


SOURCES = [
    Case("input", "Input", "input_param { shape { dim: 2 dim: 3 } }", shapes=(), tops=2,
         top_shapes=((2, 3), (2, 3)), gradients=(),
         bad=(Bad("one shape, or one per top \\(2\\), got 3",
                  "input_param { shape { dim: 2 } shape { dim: 2 } shape { dim: 2 } }"),
              Bad("negative dimension", "input_param { shape { dim: -2 } }", error=NetError),
              Bad("more than Caffe's limit", "input_param { shape { dim: 65536 dim: 65536 } }",
                  error=NetError))),
    Case("dummy data", "DummyData",
         "dummy_data_param { shape { dim: 2 dim: 3 } shape { dim: 4 } "
         'data_filler { value: 2 } data_filler { type: "gaussian" std: 1 } }',
         shapes=(), tops=2, top_shapes=((2, 3), (4,)), gradients=(),
         bad=(Bad("no data_filler, one, or one per top \\(2\\)",
                  "dummy_data_param { shape { dim: 2 } data_filler {} data_filler {} "
                  "data_filler {} }"),
              Bad("needs one shape, or one per top \\(2\\), got 0", "dummy_data_param { }"),
              Bad("either shapes or num/channels/height/width",
                  "dummy_data_param { num: 1 channels: 2 height: 3 width: 4 shape { dim: 2 } }"),
              Bad("data_filler: unknown filler type",
                  'dummy_data_param { shape { dim: 2 } data_filler { type: "odd" } }'))),
    Case("dummy data legacy", "DummyData",
         "dummy_data_param { num: 1 num: 2 channels: 2 height: 3 width: 4 }", shapes=(), tops=2,
         top_shapes=((1, 2, 3, 4), (2, 2, 3, 4)), gradients=()),
]  # fmt: skip


def conv(more: str, outputs: int = 4) -> str:
    return f"convolution_param {{ num_output: {outputs} {more} }}"


SMALL = ((2, 3, 5, 6),)
CONVOLUTIONS = [
    Case("conv", "Convolution", conv("kernel_size: 3 pad: 1"), SMALL, weights=2,
         top_shapes=((2, 4, 5, 6),), golden=("conv_*",),
         bad=(Bad("kernel_size must be at least 1, got \\[0, 0\\]", conv("kernel_size: 0")),
              Bad("stride must be at least 1", conv("kernel_size: 3 stride: 0")),
              Bad("dilation must be at least 1", conv("kernel_size: 3 dilation: 0")),
              Bad("needs kernel_size", conv("")),
              Bad("kernel_size must be given once or 2 times, got 3",
                  conv("kernel_size: 1 kernel_size: 1 kernel_size: 1")),
              Bad("either kernel_size or kernel_h and kernel_w",
                  conv("kernel_size: 3 kernel_h: 3 kernel_w: 3")),
              Bad("does not fit into the padded bottom", conv("kernel_size: 7")),
              Bad("num_output must be at least 1", conv("kernel_size: 1", 0)),
              Bad("group 2 must divide the 3 input channels", conv("kernel_size: 1 group: 2")),
              Bad("group 0", conv("kernel_size: 1 group: 0")),
              Bad("axis 4 out of range", conv("kernel_size: 1 axis: 4")),
              Bad("pad", conv("kernel_size: 3 pad: -1"), error=PrototxtError),
              Bad("unknown filler type",
                  conv('kernel_size: 1 weight_filler { type: "odd" }')))),
    Case("conv without bias", "Convolution", conv("kernel_size: 3 stride: 2 bias_term: false"),
         SMALL, weights=1),
    Case("conv 1x1", "Convolution", conv("kernel_size: 1"), SMALL, weights=2),
    Case("conv groups", "Convolution", conv("kernel_size: 3 group: 2", 6), ((2, 4, 5, 4),),
         weights=2),
    Case("conv depthwise", "Convolution", conv("kernel_size: 3 pad: 1 group: 3", 3), SMALL,
         weights=2),
    Case("conv dilated", "Convolution", conv("kernel_size: 3 pad: 2 dilation: 2"), SMALL,
         weights=2, top_shapes=((2, 4, 5, 6),)),
    Case("conv rectangles", "Convolution",
         conv("kernel_h: 3 kernel_w: 1 stride_h: 2 stride_w: 1 pad_h: 1 pad_w: 0"), SMALL,
         weights=2, top_shapes=((2, 4, 3, 6),)),
    Case("conv per axis", "Convolution",
         conv("kernel_size: 3 kernel_size: 2 stride: 1 stride: 2 pad: 1 pad: 0 dilation: 1 "
              "dilation: 2"), SMALL, weights=2, top_shapes=((2, 4, 5, 2),)),
    Case("conv 1-D", "Convolution", conv("kernel_size: 3 stride: 2 pad: 1"), ((2, 3, 8),),
         weights=2, top_shapes=((2, 4, 4),),
         bad=(Bad("2-D only", conv("kernel_h: 3 kernel_w: 1")),)),
    Case("conv 3-D", "Convolution", conv("kernel_size: 2 stride: 2 pad: 1", 2),
         ((1, 2, 3, 4, 5),), weights=2, top_shapes=((1, 2, 2, 3, 3),)),
    Case("conv 4-D", "Convolution", conv("kernel_size: 2", 2), ((1, 2, 2, 3, 2, 3),), weights=2,
         top_shapes=((1, 2, 1, 2, 1, 2),)),
    Case("conv axis 2", "Convolution", conv("kernel_size: 3 axis: 2"), ((2, 2, 3, 4, 5),),
         weights=2, top_shapes=((2, 2, 4, 2, 3),)),
    Case("conv axis 0", "Convolution", conv("kernel_size: 2 axis: 0"), ((3, 4, 5),), batch=(),
         weights=2, top_shapes=((4, 3, 4),)),
    Case("conv without spatial axes", "Convolution", conv("axis: 3 group: 2", 6), ((2, 3, 2, 4),),
         weights=2, top_shapes=((2, 3, 2, 6),)),
    Case("conv of vectors", "Convolution", conv("bias_term: false"), ((3, 5),), weights=1,
         top_shapes=((3, 4),)),
    Case("conv several", "Convolution", conv("kernel_size: 3"), SMALL * 2, tops=2, weights=2,
         bad=(Bad("all bottoms must have one shape", shapes=((2, 3, 5, 6), (2, 3, 6, 6))),
              Bad("as many tops as bottoms, got 1 and 2", tops=1))),
    Case("deconv", "Deconvolution", conv("kernel_size: 3 stride: 2 pad: 1"), ((2, 3, 3, 4),),
         weights=2, top_shapes=((2, 4, 5, 7),), golden=("deconv_*",),
         bad=(Bad("kernel_size must be at least 1", conv("kernel_size: 0")),
              Bad("does not fit", conv("kernel_size: 1 pad: 3")))),
    Case("deconv groups", "Deconvolution",
         conv("kernel_size: 4 stride: 2 pad: 1 group: 2 bias_term: false", 6), ((2, 4, 3, 3),),
         weights=1, top_shapes=((2, 6, 6, 6),)),
    Case("deconv dilated", "Deconvolution", conv("kernel_h: 3 kernel_w: 2 dilation: 2"),
         ((2, 2, 3, 3),), weights=2, top_shapes=((2, 4, 7, 5),)),
    Case("deconv without spatial axes", "Deconvolution", conv("axis: 2 group: 2", 6),
         ((2, 3, 4),), weights=2, top_shapes=((2, 3, 6),)),
    Case("deconv 1-D", "Deconvolution", conv("kernel_size: 3 stride: 3"), ((2, 2, 5),),
         weights=2, top_shapes=((2, 4, 15),)),
    Case("deconv 3-D", "Deconvolution", conv("kernel_size: 2 stride: 2", 2), ((1, 2, 2, 3, 2),),
         weights=2, top_shapes=((1, 2, 4, 6, 4),)),
    Case("deconv several", "Deconvolution", conv("kernel_size: 2", 2), ((1, 2, 3, 3),) * 2,
         tops=2, weights=2),
]  # fmt: skip

INNER_PRODUCTS = [
    Case("ip", "InnerProduct", "inner_product_param { num_output: 5 }", ((4, 3, 2, 2),),
         weights=2, top_shapes=((4, 5),), golden=("ip_*",),
         bad=(Bad("num_output must be at least 1", "inner_product_param { }"),
              Bad("axis 4 out of range", "inner_product_param { num_output: 2 axis: 4 }"))),
    Case("ip axis", "InnerProduct", "inner_product_param { num_output: 5 axis: -1 }",
         ((4, 3, 2),), weights=2, top_shapes=((4, 3, 5),)),
    Case("ip axis 0", "InnerProduct", "inner_product_param { num_output: 5 axis: 0 }",
         ((4, 3),), weights=2, batch=(), top_shapes=((5,),)),
    Case("ip transpose", "InnerProduct",
         "inner_product_param { num_output: 5 transpose: true }", ((4, 6),), weights=2),
    Case("ip without bias", "InnerProduct",
         "inner_product_param { num_output: 5 bias_term: false }", ((4, 3, 2, 2),), weights=1),
    Case("ip transpose axis", "InnerProduct",
         "inner_product_param { num_output: 5 transpose: true axis: 2 bias_term: false }",
         ((2, 3, 4),), weights=1),
]  # fmt: skip


def pool(text: str) -> str:
    return f"pooling_param {{ {text} }}"


def pooling(name: str, text: str, shape: Shape = (2, 3, 6, 7), **more: object) -> list[Case]:
    """The same window with MAX and AVE."""
    return [
        Case(f"{kind.lower()} pooling{name}", "Pooling", pool(f"pool: {kind} {text}"), (shape,),
             fill=("distinct",), **more)  # type: ignore[arg-type]
        for kind in ("MAX", "AVE")
    ]  # fmt: skip


POOLINGS = [
    *pooling("", "kernel_size: 2 stride: 2", top_shapes=((2, 3, 3, 4),), golden=("pool_*",),
             bad=(Bad("kernel_size must be at least 1", pool("kernel_size: 0")),
                  Bad("stride must be at least 1", pool("kernel_size: 2 stride: 0")),
                  Bad("pad \\[2, 2\\] must be smaller than the kernel",
                      pool("kernel_size: 2 pad: 2")),
                  Bad("needs kernel_size, kernel_h and kernel_w, or global", pool("stride: 2")),
                  Bad("either kernel_size or kernel_h", pool("kernel_size: 2 kernel_h: 2")),
                  Bad("remove the kernel size", pool("global_pooling: true kernel_size: 2")),
                  Bad("pad 0 and stride 1 only", pool("global_pooling: true stride: 2")),
                  Bad("does not fit into the bottom", pool("kernel_size: 9")),
                  Bad("4 axes", shapes=((2, 3, 6),)))),
    *pooling(" overlapping", "kernel_size: 3 stride: 2", top_shapes=((2, 3, 3, 3),)),
    *pooling(" padded", "kernel_size: 3 stride: 2 pad: 1", top_shapes=((2, 3, 4, 4),)),
    *pooling(" floor", "kernel_size: 2 stride: 2 round_mode: FLOOR",
             top_shapes=((2, 3, 3, 3),)),
    *pooling(" rectangles", "kernel_h: 2 kernel_w: 3 stride_h: 1 stride_w: 2 pad_h: 0 pad_w: 1",
             top_shapes=((2, 3, 5, 4),)),
    *pooling(" padded on one side", "kernel_size: 3 stride: 4 pad_h: 1", (2, 3, 5, 8),
             top_shapes=((2, 3, 2, 2),)),
    *pooling(" gaps", "kernel_size: 2 stride: 3", (2, 3, 7, 4),
             bad=(Bad("its last window would start beyond the bottom \\[2, 3, 6, 4\\]",
                      pool("pool: AVE kernel_size: 2 stride: 3"), shapes=((2, 3, 6, 4),)),)),
    *pooling(" global", "global_pooling: true", top_shapes=((2, 3, 1, 1),)),
    *pooling(" blocks", "kernel_size: 3 stride: 2", (2, 16, 5, 5)),
    *pooling(" of volumes", "kernel_size_3d: 2 kernel_size_3d: 3 kernel_size_3d: 3 stride_3d: 1 "
          "stride_3d: 2 stride_3d: 2 pad_3d: 0 pad_3d: 1 pad_3d: 1", (2, 3, 4, 6, 7),
          top_shapes=((2, 3, 3, 4, 4),),
          bad=(Bad("must be 1 or 3 numbers", pool("kernel_size_3d: 2 kernel_size_3d: 2")),
               Bad("and 4 axes", pool("kernel_size_3d: 2"), ((2, 3, 4, 5),)),
               Bad("kernel_h and kernel_w go with 4 axes, got 5; give kernel_size_3d",
                   pool("kernel_h: 2 kernel_w: 2")),
               Bad("give either kernel_size or", pool("kernel_size: 2 kernel_size_3d: 2")),
               Bad("smaller than the kernel", pool("kernel_size_3d: 2 pad_3d: 2")))),
    *pooling(" of volumes, one size", "kernel_size: 2 stride_3d: 2", (2, 5, 3, 5, 4),
          top_shapes=((2, 5, 2, 3, 2),)),
    *pooling(" of whole volumes", "global_pooling: true", (2, 5, 3, 2, 4),
          top_shapes=((2, 5, 1, 1, 1),),
          bad=(Bad("remove the kernel size", pool("global_pooling: true kernel_size_3d: 1")),)),
    Case("stochastic pooling of volumes", "Pooling", pool("pool: STOCHASTIC kernel_size_3d: 2"),
         ((2, 3, 3, 4, 3),), fill=("positive",), random=True),
    Case("max pooling mask of volumes", "Pooling", pool("kernel_size_3d: 2 stride_3d: 2"),
         ((2, 3, 4, 4, 6),), fill=("distinct",), tops=2, top_shapes=((2, 3, 2, 2, 3),) * 2),
    Case("average pooling inside", "Pooling",
         pool("pool: AVE kernel_size: 3 stride: 2 pad: 1 avg_include_pad: false"),
         ((2, 8, 6, 7),), top_shapes=((2, 8, 4, 4),)),
    Case("stochastic pooling", "Pooling", pool("pool: STOCHASTIC kernel_size: 3 stride: 2"),
         ((2, 3, 6, 7),), fill=("positive",), random=True, top_shapes=((2, 3, 3, 3),),
         bad=(Bad("pad goes with MAX and AVE only",
                  pool("pool: STOCHASTIC kernel_size: 3 pad: 1")),)),
    Case("stochastic pooling test", "Pooling",
         pool("pool: STOCHASTIC kernel_size: 3 stride: 2"), ((2, 3, 6, 7),), fill=("positive",),
         phase="TEST"),
    Case("max pooling ties", "Pooling", pool("kernel_size: 3 stride: 2"), ((2, 3, 7, 7),),
         fill=(with_ties,), numeric=False),
    Case("max pooling mask", "Pooling", pool("kernel_size: 3 stride: 2 pad: 1"),
         ((2, 3, 6, 7),), fill=("distinct",), tops=2, top_shapes=((2, 3, 4, 4),) * 2,
         bad=(Bad("only MAX pooling has a second top", pool("pool: AVE kernel_size: 2")),)),
]  # fmt: skip

LRN = [
    Case("lrn", "LRN", "lrn_param { local_size: 3 alpha: 0.5 beta: 0.75 }", ((2, 5, 3, 4),),
         golden=("lrn_*",), tolerance=1e-4,
         bad=(Bad("local_size must be odd, got 4", "lrn_param { local_size: 4 }"),
              Bad("4 axes", shapes=((2, 5, 3),)))),
    Case("lrn five", "LRN", "lrn_param { alpha: 1e-4 k: 2 }", ((2, 6, 3, 3),), tolerance=1e-4),
    Case("lrn wider than channels", "LRN", "lrn_param { local_size: 9 beta: 0.6 }",
         ((1, 3, 3, 3),), tolerance=1e-4),
    Case("lrn within", "LRN",
         "lrn_param { local_size: 3 alpha: 0.5 norm_region: WITHIN_CHANNEL }", ((2, 3, 5, 4),),
         tolerance=1e-4),
]  # fmt: skip

PLAIN = [
    Case("relu", "ReLU", kinks=(0,), in_place=True, golden=("neuron_relu", "neuron_leaky_relu")),
    Case("relu of vectors", "ReLU", shapes=((4, 5),), kinks=(0,), in_place=True),
    Case("leaky relu", "ReLU", "relu_param { negative_slope: 0.1 }", kinks=(0,), in_place=True),
    Case("relu slope negative", "ReLU", "relu_param { negative_slope: -0.5 }", kinks=(0,)),
    Case("dropout", "Dropout", "dropout_param { dropout_ratio: 0.4 }", in_place=True, random=True,
         bad=(Bad("dropout_ratio must be at least 0 and below 1, got 1",
                  "dropout_param { dropout_ratio: 1 }"),
              Bad("dropout_ratio must be at least 0 and below 1, got -0.1",
                  "dropout_param { dropout_ratio: -0.1 }"))),
    Case("dropout of nothing", "Dropout", "dropout_param { dropout_ratio: 0 }", in_place=True),
    Case("dropout of vectors", "Dropout", shapes=((4, 33),), in_place=True, random=True),
    Case("dropout that scales later", "Dropout", "dropout_param { scale_train: false }",
         in_place=True, random=True),
    Case("dropout scaled in test", "Dropout", "dropout_param { scale_train: false }", phase="TEST",
         in_place=True),
    Case("dropout sampled in test", "Dropout", "dropout_param { sample_weights_test: true }",
         phase="TEST", in_place=True, random=True),
    Case("spatial dropout", "SpatialDropout", "spatial_dropout_param { dropout_ratio: 0.4 }",
         shapes=((3, 8, 2, 5),), in_place=True, random=True,
         bad=(Bad("at least 0 and below 1, got 1", "spatial_dropout_param { dropout_ratio: 1 }"),
              Bad("at least 2 axes", shapes=((4,),)))),
    Case("spatial dropout of vectors", "SpatialDropout", shapes=((4, 33),), in_place=True,
         random=True),
    Case("spatial dropout test", "SpatialDropout", phase="TEST", in_place=True),
    Case("dropout test", "Dropout", phase="TEST", in_place=True, golden=("neuron_dropout_test",)),
    Case("concat", "Concat", shapes=((2, 3, 4, 5), (2, 1, 4, 5), (2, 2, 4, 5)),
         top_shapes=((2, 6, 4, 5),), golden=("concat_*",),
         bad=(Bad("agree in all axes but 1", shapes=((2, 3, 4), (2, 3, 5))),
              Bad("agree in all axes but 1", shapes=((2, 3, 4), (2, 3))),
              Bad("axis 3 out of range", "concat_param { axis: 3 }", shapes=((2, 3, 4),) * 2),
              Bad("either axis or concat_dim", "concat_param { axis: 1 concat_dim: 1 }"))),
    Case("concat axis 0", "Concat", "concat_param { axis: 0 }", ((2, 3), (1, 3)), batch=(),
         top_shapes=((3, 3),)),
    Case("concat last", "Concat", "concat_param { axis: -1 }", ((2, 3, 4), (2, 3, 1)),
         top_shapes=((2, 3, 5),)),
    Case("concat legacy", "Concat", "concat_param { concat_dim: 1 }", ((2, 3), (2, 1))),
    Case("concat of one", "Concat", shapes=((2, 3, 4, 5),)),
    Case("split", "Split", tops=3, golden=("split_*",)),
    Case("split in two", "Split", tops=2),
    Case("split of one", "Split", tops=1),
    Case("softmax", "Softmax", in_place=True, golden=("softmax_*",),
         bad=(Bad("axis 4 out of range", "softmax_param { axis: 4 }"),)),
    Case("softmax axis", "Softmax", "softmax_param { axis: -1 }", in_place=True),
    Case("softmax of a class", "Softmax", shapes=((3, 1),), in_place=True),
]  # fmt: skip

SCORES, PIXELS = ((6, 5), (6,)), ((2, 5, 3, 4), (2, 1, 3, 4))
IGNORING = "loss_param {{ ignore_label: 2 normalization: {} }}"
LOSSES = [
    Case("softmax loss", "SoftmaxWithLoss", shapes=SCORES, fill=("normal", "labels 5"),
         top_shapes=((),), golden=("loss_softmax*",),
         bad=(Bad('label 5 of sample 0 in blob "in1" is not a class: there are 5 \\(0 to 4\\)',
                  fill=("normal", lambda rng, shape: np.full(shape, 5.0))),
              Bad("label -1 of sample 0",
                  fill=("normal", lambda rng, shape: np.full(shape, -1.0))),
              Bad("same first dimension", shapes=((6, 5), (5,))),
              Bad("one label per prediction: .* want 6, .* has 12", shapes=((6, 5), (6, 2))),
              Bad("softmax_param.axis: axis 2", "softmax_param { axis: 2 }"),
              Bad("expects 2 bottoms, got 1", shapes=((6, 5),)))),
    Case("softmax loss with class weights", "SoftmaxWithLoss",
         "loss_param { weight_by_label_freqs: true class_weighting: [0.5, 2, 0, 1, 3] }",
         shapes=SCORES, fill=("normal", "labels 5"),
         bad=(Bad("goes with weight_by_label_freqs", "loss_param { class_weighting: 1 }"),)),
    Case("softmax loss with softmax", "SoftmaxWithLoss", shapes=SCORES,
         fill=("normal", "labels 5"), tops=2, top_shapes=((), (6, 5)), top_gradients=(0,)),
    Case("softmax loss of pixels", "SoftmaxWithLoss", shapes=PIXELS, fill=("normal", "labels 5"),
         bad=(Bad("label 9 of sample 0, position 0",
                  fill=("normal", lambda rng, shape: np.full(shape, 9.0))),)),
    *(Case(f"softmax loss {mode.lower()}", "SoftmaxWithLoss", IGNORING.format(mode), PIXELS,
           fill=("normal", with_ignored), gradients=(0,))
      for mode in ("FULL", "VALID", "BATCH_SIZE", "NONE")),
    Case("softmax loss normalize", "SoftmaxWithLoss", "loss_param { normalize: false }", PIXELS,
         fill=("normal", "labels 5")),
    Case("softmax loss axis", "SoftmaxWithLoss", "softmax_param { axis: 2 }",
         ((2, 3, 4), (2, 3)), fill=("normal", "labels 4")),
    Case("softmax loss all ignored", "SoftmaxWithLoss", IGNORING.format("VALID"), SCORES,
         fill=("normal", lambda rng, shape: np.full(shape, 2.0)), gradients=(0,)),
    Case("softmax loss smoothed", "SoftmaxWithLoss", "loss_param { label_smoothing: 0.1 }", SCORES,
         fill=("normal", "labels 5"),
         bad=(Bad("label_smoothing must lie in", "loss_param { label_smoothing: 1 }"),
              Bad("label_smoothing must lie in", "loss_param { label_smoothing: -0.1 }"))),
    *(Case(f"softmax loss smoothed {mode.lower()}", "SoftmaxWithLoss",
           f"loss_param {{ ignore_label: 2 normalization: {mode} label_smoothing: 0.3 }}", PIXELS,
           fill=("normal", with_ignored), gradients=(0,))
      for mode in ("FULL", "VALID", "BATCH_SIZE", "NONE")),
    Case("accuracy", "Accuracy", shapes=SCORES, fill=("distinct", "labels 5"), phase="TEST",
         gradients=(), top_shapes=((),), golden=("accuracy_*",),
         bad=(Bad("top_k 6 exceeds the number of classes 5", "accuracy_param { top_k: 6 }"),
              Bad("label 7 of sample 0",
                  fill=("normal", lambda rng, shape: np.full(shape, 7.0))),
              Bad("axis 2 out of range", "accuracy_param { axis: 2 }"))),
    Case("accuracy of pixels per class", "Accuracy",
         "accuracy_param { top_k: 2 ignore_label: 2 }", PIXELS, fill=("normal", with_ignored),
         tops=2, top_shapes=((), (5,)), phase="TEST", gradients=()),
]  # fmt: skip

ROWS = SOURCES + CONVOLUTIONS + INNER_PRODUCTS + POOLINGS + LRN + PLAIN + LOSSES

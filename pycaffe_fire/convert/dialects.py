"""Which layers and fields the Caffes of this world know."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ConvertError
from ..schema.bvlc import BVLC_TYPES

# Fields that only NVIDIA's or Intel's fork has, by message; values in them change no inference
# once `unfork` has made layers of those that do.
FORK_FIELDS = {
    "FillerParameter": ("scale",),
    "NetParameter": (
        "default_forward_type", "default_backward_type", "default_forward_math",
        "default_backward_math", "global_grad_scale", "global_grad_scale_adaptive",
        "default_conv_algos_override", "reduce_buckets", "default_cudnn_math_override",
        "eltwise_mem_sharing", "compile_net_state", "engine", "bn_stats_batch_size", "multinode",
    ),
    "LayerParameter": (
        "forward_type", "backward_type", "forward_math", "backward_math", "debug",
        "cudnn_math_override", "split_param", "engine", "multinode", "mn_activation_param",
        "mn_grad_compress_param", "quantization_param",
    ),
    "TransformationParameter": (
        "crop_h", "crop_w", "resize_param", "noise_param", "distort_param", "expand_param",
        "emit_constraint", "img_rand_resize_lower", "img_rand_resize_upper",
        "rand_resize_ratio_lower", "rand_resize_ratio_upper", "vertical_stretch_lower",
        "vertical_stretch_upper", "horizontal_stretch_lower", "horizontal_stretch_upper",
        "interpolation_algo_down", "interpolation_algo_up", "allow_upscale", "forward_packing",
        "use_gpu_transform", "random_seed", "display", "num_labels", "random_resize_param",
        "random_aspect_ratio_param", "flow", "bgr2rgb", "pad",
    ),
    "LossParameter": ("label_smoothing", "pre_fixed_normalizer"),
    "BatchNormParameter": (
        "bias_filler", "engine", "scale_filler", "use_weight_bias", "bias_term", "filler",
        "stats_batch_size",
    ),
    "ConcatParameter": ("per_fla_fuse", "engine"),
    "ConvolutionParameter": (
        "cudnn_convolution_algo_seeker", "conv_algos_override", "conv_algorithm",
    ),
    "DataParameter": ("shuffle", "threads", "parser_threads", "cache", "precache", "side"),
    "DropoutParameter": ("engine", "random_seed"),
    "EltwiseParameter": ("engine",),
    "ImageDataParameter": (
        "short_side", "threads", "cache", "precache", "dataset_share_per_node", "min_height",
        "min_width",
    ),
    "InnerProductParameter": ("engine",),
    "PoolingParameter": ("torch_pooling", "pad_3d", "kernel_size_3d", "stride_3d", "axis"),
    "ReLUParameter": ("fuse",),
}  # fmt: skip


@dataclass(frozen=True)
class Dialect:
    """What a target's Caffe can do beyond the layers of Caffe 1.0, and what it lacks of them."""

    name: str
    more: frozenset[str] = frozenset()
    floor_pooling: bool = True  # pooling_param has round_mode
    clip: bool = True  # has Clip and Swish

    def knows(self, kind: str) -> bool:
        if kind in ("Clip", "Swish"):
            return self.clip
        return kind in BVLC_TYPES or kind in self.more


_SSD = frozenset({"DetectionOutput", "MultiBoxLoss", "Normalize", "Permute", "PriorBox"})
DIALECTS = {
    "bvlc": Dialect("bvlc"),
    "ssd": Dialect("ssd", _SSD, floor_pooling=False, clip=False),
    "nnie": Dialect(
        "nnie", _SSD | {"PSROIPooling", "ROIPooling", "Upsample"}, floor_pooling=False, clip=False
    ),
}


def dialect(name: str) -> Dialect:
    if name not in DIALECTS:
        raise ConvertError(f'unknown dialect "{name}"; known: {", ".join(DIALECTS)}')
    return DIALECTS[name]

"""The flags of classify.py and detect.py that say how images become a net's input."""

from __future__ import annotations

import argparse
from typing import Any

from ..pycaffe.classifier import read_mean
from ..pycaffe.settings import set_mode_gpu
from .common import Parser


def add_image_flags(parser: Parser) -> None:
    flag = parser.add_argument
    flag("--model_def", required=True, metavar="FILE", help="the net: a deploy.prototxt")
    flag("--pretrained_model", required=True, metavar="FILE", help="its weights: a .caffemodel")
    flag("--gpu", action="store_true", help="run on the GPU")
    flag(
        "--mean_file", metavar="FILE",
        help="what to subtract: a .npy, or a .binaryproto of compute_image_mean's",
    )  # fmt: skip
    flag("--input_scale", type=float, metavar="X", help="factor after the mean is subtracted")
    flag(
        "--raw_scale", type=float, default=255.0, metavar="X",
        help="factor before that (default: 255, for nets that learned from bytes)",
    )  # fmt: skip
    flag(
        "--channel_swap", type=whole_numbers, default=(2, 1, 0), metavar="ORDER",
        help="order of channels (default: 2,1,0, which makes BGR of RGB)",
    )  # fmt: skip


def whole_numbers(text: str) -> tuple[int, ...]:
    """`256,256`"""
    if not all(part.strip().isdecimal() for part in text.split(",")):
        raise argparse.ArgumentTypeError(f'needs whole numbers separated by commas, got "{text}"')
    return tuple(int(part) for part in text.split(","))


def net_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """What these flags mean to a Classifier or Detector; the GPU is turned on here."""
    if options.gpu:
        set_mode_gpu()
    return {
        "model_file": options.model_def,
        "pretrained_file": options.pretrained_model,
        "mean": read_mean(options.mean_file) if options.mean_file else None,
        "input_scale": options.input_scale,
        "raw_scale": options.raw_scale,
        "channel_swap": options.channel_swap,
    }

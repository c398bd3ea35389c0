"""classify.py: probabilities of images' classes, as pycaffe's script of that name."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from ..errors import DataError
from ..pycaffe.classifier import Classifier, read_images, write_array
from .common import Parser, run
from .image_flags import add_image_flags, net_arguments, whole_numbers

COMMANDS = """
  classify.py --model_def deploy.prototxt --pretrained_model net.caffemodel
              --mean_file mean.binaryproto cat.jpg scores.npy
  classify.py --model_def ... --pretrained_model ... --ext png images/ scores.npy
"""


def _parser() -> Parser:
    parser = Parser("classify.py", COMMANDS)
    flag = parser.add_argument
    flag("input_file", metavar="IMAGES", help="an image, a folder, or a .npy of images")
    flag("output_file", metavar="SCORES.npy", help="where the scores go: images x classes")
    add_image_flags(parser)
    flag("--center_only", action="store_true", help="the centre alone, not the mean of ten crops")
    flag(
        "--images_dim", type=whole_numbers, default=(256, 256), metavar="H,W",
        help="size that images are resized to before they are cropped (default: 256,256)",
    )  # fmt: skip
    flag("--ext", default="jpg", metavar="END", help="images of a folder (default: jpg)")
    return parser


def _classify(options: argparse.Namespace) -> None:
    if len(options.images_dim) != 2:
        raise DataError(f"--images_dim takes height,width, got {options.images_dim}")
    images = read_images(options.input_file, options.ext.lstrip("."))
    classifier = Classifier(image_dims=options.images_dim, **net_arguments(options))
    print(f"Classifying {len(images)} inputs.")
    began = time.perf_counter()
    scores = classifier.predict(images, not options.center_only)
    print(f"Done in {time.perf_counter() - began:.2f} s.")
    print(f"Saving results into {options.output_file}")
    write_array(options.output_file, scores)


def main(arguments: Sequence[str] | None = None) -> int:
    return run(_parser(), _classify, arguments)


if __name__ == "__main__":
    sys.exit(main())

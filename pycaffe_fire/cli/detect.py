"""detect.py: scores of windows in images, as pycaffe's script of that name."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from ..errors import DataError
from ..pycaffe.detector import Detector
from ..pycaffe.window_files import read_names, read_windows, write_detections
from .common import Parser, run
from .image_flags import add_image_flags, net_arguments

COMMANDS = """
  detect.py --crop_mode list --model_def deploy.prototxt --pretrained_model net.caffemodel
            windows.csv detections.csv
  detect.py --model_def ... --pretrained_model ... images.txt detections.h5

  windows.csv has columns filename,ymin,xmin,ymax,xmax. Without a list of windows, selective search
  proposes them, which needs MATLAB.
"""


def _parser() -> Parser:
    parser = Parser("detect.py", COMMANDS)
    flag = parser.add_argument
    flag("input_file", metavar="INPUT", help="a .csv of windows, or a .txt of images' names")
    flag("output_file", metavar="OUTPUT", help="what was found, as .csv or .h5")
    add_image_flags(parser)
    flag(
        "--crop_mode", choices=("list", "selective_search"), default="selective_search",
        help="where windows come from (default: selective_search)",
    )  # fmt: skip
    flag(
        "--context_pad", type=int, default=16, metavar="N",
        help="pixels of the input around the window (default: 16)",
    )  # fmt: skip
    return parser


def _detect(options: argparse.Namespace) -> None:
    if not options.output_file.endswith((".csv", ".h5", ".hdf5")):
        raise DataError(f"{options.output_file}: must end in .csv or .h5")
    listed = options.crop_mode == "list"
    windows = read_windows(options.input_file) if listed else []
    names = [] if listed else read_names(options.input_file)
    detector = Detector(context_pad=options.context_pad, **net_arguments(options))
    began = time.perf_counter()
    found = detector.detect_windows(windows) if listed else detector.detect_selective_search(names)
    print(f"Processed {len(found)} windows in {time.perf_counter() - began:.3f} s.")
    write_detections(options.output_file, found)
    print(f"Saved to {options.output_file}")


def main(arguments: Sequence[str] | None = None) -> int:
    return run(_parser(), _detect, arguments)


if __name__ == "__main__":
    sys.exit(main())

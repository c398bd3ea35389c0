"""draw_net.py: a net as a drawing, as pycaffe's script of that name."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .. import schema
from ..pycaffe.draw import draw_net_to_file
from ..pycaffe.draw.drawing import DIRECTIONS
from .common import Parser, run

COMMANDS = """
  draw_net.py train_val.prototxt net.svg
  draw_net.py --rankdir TB --phase TRAIN train_val.prototxt net.png
"""


def _parser() -> Parser:
    parser = Parser("draw_net.py", COMMANDS)
    flag = parser.add_argument
    flag("input_net_proto_file", metavar="NET", help="the net's prototxt")
    flag("output_image_file", metavar="DRAWING", help="what to draw: .svg, .png, .jpg, .pdf, ...")
    flag(
        "--rankdir", choices=DIRECTIONS, default="LR",
        help="from left to right (default), top to bottom, ...",
    )  # fmt: skip
    flag(
        "--phase", choices=("TRAIN", "TEST", "ALL"), default="ALL",
        help="leave out layers of the other phase (default: ALL, none)",
    )  # fmt: skip
    flag("--display_lrm", action="store_true", help="show learning rate multipliers")
    return parser


def _draw(options: argparse.Namespace) -> None:
    net = schema.read_net(options.input_net_proto_file)
    phase = None if options.phase == "ALL" else getattr(schema, options.phase)
    print(f"Drawing net to {options.output_image_file}")
    draw_net_to_file(net, options.output_image_file, options.rankdir, phase, options.display_lrm)


def main(arguments: Sequence[str] | None = None) -> int:
    return run(_parser(), _draw, arguments)


if __name__ == "__main__":
    sys.exit(main())

"""compute_image_mean: the mean image of a database, as Caffe's tool of that name."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ..data.survey import compute_mean, write_mean
from .gflags import FlagParser, add_backend, run_tool

COMMANDS = """
  compute_image_mean [FLAGS] INPUT_DB [OUTPUT_FILE]
  compute_image_mean train_lmdb mean.binaryproto
"""


def _parser() -> FlagParser:
    parser = FlagParser("compute_image_mean", COMMANDS)
    parser.add_argument("database", metavar="INPUT_DB", help="the database")
    parser.add_argument("out", metavar="OUTPUT_FILE", nargs="?", help="such as mean.binaryproto")
    add_backend(parser, "the kind of database")
    return parser


def _mean(options: argparse.Namespace) -> None:
    mean = compute_mean(options.database, options.backend)
    if options.out:
        write_mean(options.out, mean)
    print(f"Number of channels: {len(mean)}")
    for channel, plane in enumerate(mean):
        print(f"mean_value channel [{channel}]: {plane.mean(dtype='f8'):g}")


def main(arguments: Sequence[str] | None = None) -> int:
    return run_tool(_parser(), _mean, arguments)


if __name__ == "__main__":
    sys.exit(main())

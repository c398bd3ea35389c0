"""convert_mnist_siamese_data: pairs of MNIST's images, as Caffe's tool of that name makes them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ..data.convert import convert_mnist_pairs
from .gflags import FlagParser, add_backend, run_tool

COMMANDS = """
  convert_mnist_siamese_data [FLAGS] input_image_file input_label_file output_db_file
  convert_mnist_siamese_data train-images-idx3-ubyte train-labels-idx1-ubyte mnist_siamese_leveldb
"""


def _parser() -> FlagParser:
    parser = FlagParser("convert_mnist_siamese_data", COMMANDS)
    parser.add_argument("images", help="train-images-idx3-ubyte or t10k-..., also gzipped")
    parser.add_argument("labels", help="train-labels-idx1-ubyte or t10k-..., also gzipped")
    parser.add_argument("database", help="the database to make")
    add_backend(parser, "the kind of database", default="leveldb")
    return parser


def _convert(options: argparse.Namespace) -> None:
    count = convert_mnist_pairs(options.images, options.labels, options.database, options.backend)
    print(f"{options.database}: {count:,} pairs")


def main(arguments: Sequence[str] | None = None) -> int:
    return run_tool(_parser(), _convert, arguments)


if __name__ == "__main__":
    sys.exit(main())

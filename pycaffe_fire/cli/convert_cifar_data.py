"""convert_cifar_data: CIFAR-10's binary files to databases, as Caffe's tool of that name."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ..data.convert import convert_cifar
from .gflags import FlagParser, run_tool

COMMANDS = """
  convert_cifar_data input_folder output_folder db_type
  convert_cifar_data cifar-10-batches-bin data lmdb      data/cifar10_{train,test}_lmdb
"""


def _parser() -> FlagParser:
    parser = FlagParser("convert_cifar_data", COMMANDS)
    parser.add_argument("folder", help="where data_batch_1.bin to 5 and test_batch.bin are")
    parser.add_argument("out", help="folder for the two databases")
    parser.add_argument("backend", choices=("lmdb", "leveldb"), help="the kind of database")
    return parser


def _convert(options: argparse.Namespace) -> None:
    for path, count in convert_cifar(options.folder, options.out, options.backend):
        print(f"{path}: {count:,} images")


def main(arguments: Sequence[str] | None = None) -> int:
    return run_tool(_parser(), _convert, arguments)


if __name__ == "__main__":
    sys.exit(main())

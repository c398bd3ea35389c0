"""convert_imageset: images named in a list to a database, as Caffe's tool of that name."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields

from ..data.bad_records import FAIL, SKIP
from ..data.convert import ImageSet
from .common import whole
from .gflags import FlagParser, add_backend, run_tool

COMMANDS = """
  convert_imageset [FLAGS] ROOTFOLDER/ LISTFILE DB_NAME
  convert_imageset --resize_height=256 --resize_width=256 --shuffle train/ train.txt train_lmdb
  convert_imageset --encoded train/ train.txt train_lmdb      keep the files as they are, JPEG

  LISTFILE has lines "path label"; ROOTFOLDER/ is put in front of each path.
"""


def _parser() -> FlagParser:
    parser = FlagParser("convert_imageset", COMMANDS)
    add_image_set_flags(parser, 'lines "path label"')
    return parser


def add_image_set_flags(parser: FlagParser, lines: str) -> None:
    """What convert_annoset takes, too; `lines` are those of its list."""
    parser.add_argument("root", metavar="ROOTFOLDER/", help="put in front of the list's paths")
    parser.add_argument("list_file", metavar="LISTFILE", help=lines)
    parser.add_argument("database", metavar="DB_NAME", help="the database to make")
    parser.boolean("gray", "read images as grey")
    parser.boolean("shuffle", "write in random order (the same one every time)")
    add_backend(parser, "the kind of database")
    for side in ("width", "height"):
        parser.add_argument(
            f"--resize_{side}", type=whole, default=0, metavar="N",
            help=f"{side} to resize to (default: 0, as it is)",
        )  # fmt: skip
    parser.boolean("check_size", "make sure that all data have the same size")
    parser.boolean("encoded", "store encoded images")
    parser.add_argument(
        "--encode_type", default="", metavar="KIND",
        help="how to encode (png, jpg, ...; default: as the file is); implies --encoded",
    )  # fmt: skip
    parser.add_argument("--threads", type=whole, default=0, metavar="N", help="default: all cores")
    parser.add_argument(
        "--policy", choices=(FAIL, SKIP), default=FAIL,
        help="on an image that cannot be read (default: fail)",
    )  # fmt: skip


def report(database: str, wanted: ImageSet) -> None:
    """Convert, and say what was made."""
    count, skipped = wanted.convert()
    left_out = f", {skipped:,} skipped" if skipped else ""
    print(f"{database}: {count:,} images{left_out}")


def _convert(options: argparse.Namespace) -> None:
    wanted = ImageSet(**{field.name: getattr(options, field.name) for field in fields(ImageSet)})
    report(options.database, wanted)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_tool(_parser(), _convert, arguments)


if __name__ == "__main__":
    sys.exit(main())

"""fire_data: make and look after data."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..data.bad_records import FAIL, SKIP
from ..data.digits import make_digits
from ..data.folder import PARTS, FolderSet, convert_folder, ignored_text
from ..data.shapes import make_shapes
from ..data.survey import Survey, check, contact_sheet, save_sheet
from ..errors import DataError
from ..net.deploy import derive_deploy
from ..schema import read_net, to_text, write_text
from .common import Parser, PlainParser, image_shape, positive, whole
from .gflags import run_tool

COMMANDS = """
  fire_data digits data                        draw the embedded digits into
                                               data/digits_{train,test}_lmdb
  fire_data shapes data                        the same for the shapes, with boxes
  fire_data folder images/ out                 class folders to LMDBs, mean and names of classes
  fire_data deploy train_val.prototxt          the net for classifying
  fire_data check train_lmdb --classes 10      read every record; labels, shapes and what is wrong
  fire_data show train_lmdb --out page.png     a contact sheet, with the boxes of annotated records
"""
_SHOWN = 20  # problems and labels that are printed one by one
_BAR = 40  # characters


def _parser() -> Parser:
    parser = Parser("fire_data", COMMANDS)
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=PlainParser
    )
    digits = commands.add_parser(
        "digits", usage="fire_data digits OUT", help="draw the embedded digits as LMDBs"
    )
    digits.add_argument("out", type=Path, help="folder for digits_train_lmdb and digits_test_lmdb")
    shapes = commands.add_parser(
        "shapes", usage="fire_data shapes OUT", help="draw the embedded shapes with their boxes"
    )
    shapes.add_argument("out", type=Path, help="folder for shapes_train_lmdb and shapes_test_lmdb")
    _add_folder(commands)
    _add_deploy(commands)
    looking = commands.add_parser(
        "check", usage="fire_data check DB [--classes N]", help="read every record of a database"
    )
    looking.add_argument("database", help="an LMDB or LevelDB")
    looking.add_argument("--classes", type=whole, default=0, help="labels must be below this")
    showing = commands.add_parser(
        "show", usage="fire_data show DB --out PAGE.png [--count N]", help="make a contact sheet"
    )
    showing.add_argument("database", help="an LMDB or LevelDB")
    showing.add_argument("--out", required=True, help="the image to write (.png or .jpg)")
    showing.add_argument(
        "--count", type=positive, default=100, help="how many records (default: 100)"
    )
    return parser


def _add_folder(commands: Any) -> None:
    parser = commands.add_parser(
        "folder",
        usage="fire_data folder IMAGES OUT [--val 0.2] [--size 256] [--gray] [--encoded]",
        help="make databases, mean and names of classes from class folders",
    )
    flag = parser.add_argument
    flag("images", help="a folder with one folder per class, or with train/ and val/ of such")
    flag("out", help="folder to make: train_lmdb, val_lmdb, mean.binaryproto, labels.txt, ...")
    flag("--val", type=float, default=0.2, metavar="X", help="share for validation (default: 0.2)")
    flag(
        "--size", type=image_size, default=(256, 256), metavar="N or HxW",
        help="what images are resized to (default: 256)",
    )  # fmt: skip
    flag("--gray", action="store_true", help="read images as grey")
    flag("--encoded", action="store_true", help="store JPEGs and PNGs instead of pixels")
    flag(
        "--policy", choices=(FAIL, SKIP), default=FAIL,
        help="on an image that cannot be read (default: fail)",
    )  # fmt: skip


def _add_deploy(commands: Any) -> None:
    parser = commands.add_parser(
        "deploy",
        usage="fire_data deploy TRAIN_VAL [-o deploy.prototxt] [--shape C,H,W] [--outputs BLOBS]",
        help="derive the net for classifying from one for training",
    )
    flag = parser.add_argument
    flag("net", help="the net for training")
    flag("-o", "--output", metavar="FILE", help="the net to write (default: standard output)")
    flag("--shape", type=image_shape, metavar="C,H,W", help="of images, where no crop_size says it")
    flag("--outputs", default="", metavar="BLOBS", help="blobs to keep, separated by commas")


def image_size(text: str) -> tuple[int, int]:
    """The type of a flag that takes `256` or `240x320` (height x width)."""
    height, _, width = text.partition("x")
    return positive(height), positive(width or height)


def _work(options: argparse.Namespace) -> None:
    if options.command == "digits":
        for line in make_digits(options.out):
            print(line)
    elif options.command == "shapes":
        for line in make_shapes(options.out):
            print(line)
    elif options.command == "folder":
        _folder(options)
    elif options.command == "deploy":
        _deploy(options)
    elif options.command == "check":
        found = check(options.database, classes=options.classes)
        _print_survey(found)
        if found.problems:
            raise DataError(
                f"{found.path}: {len(found.problems):,} of {found.count:,} records cannot be used"
            )
    else:
        sheet = contact_sheet(options.database, count=options.count)
        save_sheet(sheet, options.out)
        print(f"{options.out}: {sheet.width} x {sheet.height} pixels")


def _folder(options: argparse.Namespace) -> None:
    height, width = options.size
    made = convert_folder(
        FolderSet(
            options.images, options.out, options.val, height, width, options.gray,
            options.encoded, options.policy,
        )
    )  # fmt: skip
    wide = max(len("class"), *map(len, made.classes))
    print(f"{'label':>5}  {'class':<{wide}}  {'train':>8}  {'val':>8}")
    for label, name in enumerate(made.classes):
        counts = "  ".join(f"{made.counts[part][label]:>8,}" for part in PARTS)
        print(f"{label:>5}  {name:<{wide}}  {counts}")
    for part in PARTS:
        print(f"{options.out}/{part}_lmdb: {sum(made.counts[part]):,} images, checked")
    colour = ", ".join(f"{plane.mean(dtype='f8'):.1f}" for plane in made.mean)
    print(f"{options.out}/mean.binaryproto: mean colour {colour}")
    print(f"{options.out}/labels.txt: {len(made.classes):,} classes")
    if made.skipped:
        print(f"{made.skipped:,} images could not be read and are left out")
    if made.ignored:
        print(ignored_text(made.ignored))


def _deploy(options: argparse.Namespace) -> None:
    outputs = [name for name in options.outputs.split(",") if name]
    made = derive_deploy(read_net(options.net), options.shape, outputs, options.net)
    if options.output:
        write_text(made.net, options.output)
        print(f"{options.output}: {len(made.net.layer)} layers, gives {', '.join(made.outputs)}")
    else:
        print(to_text(made.net), end="")
    if made.left_out:
        print(f"fire_data: left out with their branches: {', '.join(made.left_out)}; --outputs "
              "keeps others", file=sys.stderr)  # fmt: skip


def _print_survey(found: Survey) -> None:
    print(f"{found.path}: {found.count:,} records")
    for shape, count in found.shapes.most_common():
        print(f"  {shape}: {count:,}")
    if found.annotated:
        print(f"{found.labels.total():,} objects; {found.empty:,} records have none")
    if found.labels:
        print(f"{len(found.labels):,} labels, {min(found.labels)} to {max(found.labels)}")
    most = max(found.labels.values(), default=1)
    for label, count in sorted(found.labels.items())[:_SHOWN]:
        print(f"  {label:>6}: {count:>9,} {'#' * max(1, count * _BAR // most)}")
    if len(found.labels) > _SHOWN:
        print(f"  ... and {len(found.labels) - _SHOWN:,} more")
    for problem in found.problems[:_SHOWN]:
        print(problem)
    if len(found.problems) > _SHOWN:
        print(f"... and {len(found.problems) - _SHOWN:,} more like these")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0, or 1 after one sentence on what went wrong."""
    return run_tool(_parser(), _work, arguments)


if __name__ == "__main__":
    sys.exit(main())

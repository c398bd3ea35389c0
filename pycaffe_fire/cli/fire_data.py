"""fire_data: make and look after data."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..data.digits import make_digits
from ..data.survey import Survey, check, contact_sheet, save_sheet
from ..errors import DataError
from .common import Parser, PlainParser, positive, whole
from .gflags import run_tool

COMMANDS = """
  fire_data digits data                        draw the embedded digits into
                                               data/digits_{train,test}_lmdb
  fire_data check train_lmdb --classes 10      read every record; labels, shapes and what is wrong
  fire_data show train_lmdb --out page.png     a contact sheet
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


def _work(options: argparse.Namespace) -> None:
    if options.command == "digits":
        for line in make_digits(options.out):
            print(line)
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


def _print_survey(found: Survey) -> None:
    print(f"{found.path}: {found.count:,} records")
    for shape, count in found.shapes.most_common():
        print(f"  {shape}: {count:,}")
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

"""fire_data: make and look after data.

fire_data digits data        draw the embedded digits into data/digits_{train,test}_lmdb
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..data.digits import make_digits
from .common import Parser, PlainParser, run

COMMANDS = """
  fire_data digits data    draw the embedded digits into data/digits_{train,test}_lmdb
"""


def _parser() -> Parser:
    parser = Parser("fire_data", COMMANDS)
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=PlainParser
    )
    digits = commands.add_parser(
        "digits", usage="fire_data digits OUT", help="draw the embedded digits as LMDBs"
    )
    digits.add_argument("out", type=Path, help="folder for digits_train_lmdb and digits_test_lmdb")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0, or 1 after one sentence on what went wrong."""
    return run(_parser(), _digits, arguments)


def _digits(options: argparse.Namespace) -> None:
    for line in make_digits(options.out):
        print(line)


if __name__ == "__main__":
    sys.exit(main())

"""fire_data: make and look after data.

fire_data digits data        draw the embedded digits into data/digits_{train,test}_lmdb
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pycaffe_fire.data.digits import make_digits
from pycaffe_fire.errors import FireError

COMMANDS = """
  fire_data digits data    draw the embedded digits into data/digits_{train,test}_lmdb
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fire_data", usage=COMMANDS)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    digits = commands.add_parser(
        "digits", usage="fire_data digits OUT", help="draw the embedded digits as LMDBs"
    )
    digits.add_argument("out", type=Path, help="folder for digits_train_lmdb and digits_test_lmdb")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit status is 0, or 1 after one sentence on what went wrong."""
    options = _parser().parse_args(arguments)
    try:
        for line in make_digits(options.out):
            print(line)
    except FireError as error:
        print(f"fire_data: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("fire_data: interrupted, nothing half-made is left", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""upgrade_solver_proto_text: a solver's prototxt of any age in the newest form, as Caffe's tool."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ..schema.upgrade_files import upgrade_solver_text
from .gflags import FlagParser, run_tool

COMMANDS = """
  upgrade_solver_proto_text OLD.prototxt NEW.prototxt
"""


def _parser() -> FlagParser:
    parser = FlagParser("upgrade_solver_proto_text", COMMANDS)
    parser.add_argument("source", metavar="OLD", help="what to upgrade")
    parser.add_argument("target", metavar="NEW", help="the file to write")
    return parser


def _upgrade(options: argparse.Namespace) -> None:
    upgrade_solver_text(options.source, options.target)
    print(f"Wrote upgraded SolverParameter text proto to {options.target}")


def main(arguments: Sequence[str] | None = None) -> int:
    return run_tool(_parser(), _upgrade, arguments)


if __name__ == "__main__":
    sys.exit(main())

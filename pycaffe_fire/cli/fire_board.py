"""fire_board: a live page over run folders, for this machine's browser."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ..board.processes import end_with_parent
from ..board.server import serve
from .common import Parser, run, whole

COMMANDS = """
  fire_board                        all runs below this folder
  fire_board runs                   all runs below runs/
  fire_board runs --host 0.0.0.0    for other machines, too: whoever has the printed address
  ssh -L 8890:localhost:8890 host   better: from your machine to a board on another
"""


def _parser() -> Parser:
    parser = Parser("fire_board", COMMANDS)
    flag = parser.add_argument
    flag("folder", nargs="?", default=".", metavar="FOLDER", help="where runs are (default: here)")
    flag(
        "--host", default="127.0.0.1", metavar="ADDRESS",
        help="the address to listen on (default: 127.0.0.1, which only this machine reaches)",
    )  # fmt: skip
    flag("--port", type=whole, metavar="N", help="the port (default: the first free one from 8890)")
    flag("--with-parent", action="store_true", help=argparse.SUPPRESS)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    return run(_parser(), _serve, arguments)


def _serve(options: argparse.Namespace) -> None:
    if options.with_parent:
        end_with_parent()
    serve(options.folder, options.host, options.port, lambda address: print(address, flush=True))


if __name__ == "__main__":
    sys.exit(main())

"""Flags as Caffe's data tools take them: --gray, --gray=true, --nogray, -backend lmdb."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence

from .common import Parser, run

_TRUE = ("true", "t", "yes", "y", "1")
_FALSE = ("false", "f", "no", "n", "0")


class FlagParser(Parser):
    """A parser whose booleans may be given alone, negated, or with a value after "="."""

    def __init__(self, prog: str, commands: str) -> None:
        super().__init__(prog, commands)
        self._booleans: set[str] = set()

    def boolean(self, name: str, text: str) -> None:
        self._booleans.add(name)
        self.add_argument(f"--{name}", type=_boolean, default=False, metavar="BOOL", help=text)

    def parse(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        given = sys.argv[1:] if arguments is None else arguments
        return super().parse([self._with_value(argument) for argument in given])

    def _with_value(self, argument: str) -> str:
        name = argument.lstrip("-")
        if not argument.startswith("-"):
            return argument
        if name in self._booleans:
            return f"--{name}=true"
        if name.startswith("no") and name[2:] in self._booleans:
            return f"--{name[2:]}=false"
        return argument


def _boolean(text: str) -> bool:
    if text.lower() in _TRUE + _FALSE:
        return text.lower() in _TRUE
    raise argparse.ArgumentTypeError(f'needs true or false, got "{text}"')


def add_backend(parser: Parser, what: str, default: str = "lmdb") -> None:
    parser.add_argument(
        "--backend",
        choices=("lmdb", "leveldb"),
        default=default,
        help=f"{what} (default: {default})",
    )


def run_tool(
    parser: Parser, work: Callable[[argparse.Namespace], None], arguments: Sequence[str] | None
) -> int:
    """`run`, with warnings (skipped records) on stderr."""
    logging.basicConfig(format=f"{parser.prog}: %(message)s", level=logging.WARNING)
    return run(parser, work, arguments)

"""What all commands share: flags in Caffe's spellings, and errors as one sentence and status 1."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ..errors import FireError
from ..installation import install_hint
from ..parallel.launch import INTERRUPTED
from ..registry import did_you_mean
from ..version import VERSION

_FLAG = re.compile("-[A-Za-z]")  # not a negative number


class PlainParser(argparse.ArgumentParser):
    """A wrong flag is one sentence and status 1, like any other mistake."""

    def error(self, message: str) -> NoReturn:
        command = self.prog.split()[0]
        self.exit(1, f"{command}: {message}; see {command} --help\n")


class _PrintCompletion(argparse.Action):
    """Prints a completion script made by shtab, and ends."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any,
        option_string: str | None = None,
    ) -> NoReturn:  # fmt: skip
        try:
            import shtab
        except ImportError:
            parser.error(f"--print-completion needs shtab: {install_hint('completion')}")
        kinds = {"FILE": shtab.FILE, "FILES": shtab.FILE, "DIR": shtab.DIRECTORY}
        for action in parser._actions:
            if action.metavar in kinds:
                action.complete = kinds[action.metavar]  # type: ignore[attr-defined]
        print(shtab.complete(parser, values))
        parser.exit(0)


class Parser(PlainParser):
    """Help opens with the commands to type; -flag works as well as --flag, as in Caffe."""

    def __init__(self, prog: str, commands: str) -> None:
        super().__init__(
            prog=prog,
            usage=commands,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.set_defaults(prog=prog)
        self.add_argument("--debug", action="store_true", help="show a traceback with errors")
        self.add_argument(
            "--print-completion", choices=["bash", "zsh", "tcsh"], action=_PrintCompletion,
            help="print a script with which the shell completes this command's flags",
        )  # fmt: skip
        self.add_argument("--version", action="version", version=f"pycaffe_fire {VERSION}")

    def parse(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        given = [self._two_dashes(a) for a in (sys.argv[1:] if arguments is None else arguments)]
        self._refuse_unknown(given)
        return self.parse_args(given, argparse.Namespace(given=given))

    def _two_dashes(self, argument: str) -> str:
        name = argument.split("=", 1)[0]
        known = name.startswith("-") and f"-{name}" in self._option_string_actions
        return f"-{argument}" if known else argument

    def _refuse_unknown(self, given: Sequence[str]) -> None:
        """argparse would first report a flag that is missing because of a typo."""
        if self._subparsers:  # whose flags we do not know
            return
        known = list(self._option_string_actions)
        for argument in given:
            name = argument.split("=", 1)[0]
            if name == "--":
                return
            mistyped = name.startswith("--") and name not in known
            if mistyped or (_FLAG.match(name) and name[:2] not in known):
                self.error(f"unknown flag {name}{did_you_mean(name, known)}")


def positive(text: str) -> int:
    """The type of a flag that takes a whole number, but not 0."""
    return whole(text, least=1)


def whole(text: str, least: int = 0) -> int:
    """The type of a flag that takes a whole number."""
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f'needs a whole number of at least {least}, got "{text}"')
    return int(text)


def image_shape(text: str) -> tuple[int, ...]:
    """The type of a flag that takes C,H,W."""
    shape = tuple(positive(part) for part in text.split(","))
    if len(shape) != 3:
        raise argparse.ArgumentTypeError(f'needs channels,height,width, got "{text}"')
    return shape


def without_flags(arguments: Sequence[str], flags: Sequence[str]) -> list[str]:
    """The arguments less these flags and their values."""
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in flags:
            skip = True
        elif argument.split("=", 1)[0] not in flags:
            kept.append(argument)
    return kept


def run(
    parser: Parser,
    work: Callable[[argparse.Namespace], None],
    arguments: Sequence[str] | None,
) -> int:
    """Parse and work; the exit status is 0, or 1 after one sentence on what went wrong."""
    options = parser.parse(arguments)
    try:
        work(options)
        sys.stdout.flush()
    except FireError as error:
        return _explain(options, str(error))
    except MemoryError as error:
        reason = f" ({error})" if str(error) else ""
        return _explain(options, f"out of memory{reason}; use a smaller batch_size with iter_size")
    except BrokenPipeError:
        # The reader of our output has gone; Python would report that once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # one more must not spoil the message
        print(f"{options.prog}: interrupted, nothing half-written is left", file=sys.stderr)
        sys.stdout.flush()
        os._exit(INTERRUPTED)  # not waiting for worker threads in the middle of a pass
    return 0


def _explain(options: argparse.Namespace, message: str) -> int:
    if options.debug:
        traceback.print_exc()
    print(f"{options.prog}: {message}", file=sys.stderr)
    return 1

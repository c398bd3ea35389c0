"""Caffe's upgrade tools: a net, its weights or a solver of any age in the newest form."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..schema.upgrade_files import upgrade_net_binary, upgrade_net_text, upgrade_solver_text
from .gflags import FlagParser, run_tool

Arguments = Sequence[str] | None


def _main(
    name: str, suffix: str, what: str, upgrade: Callable[[str, str], None], arguments: Arguments
) -> int:
    parser = FlagParser(name, f"\n  {name} OLD.{suffix} NEW.{suffix}\n")
    parser.add_argument("source", metavar="OLD", help="what to upgrade")
    parser.add_argument("target", metavar="NEW", help="the file to write")

    def run(options: object) -> None:
        source, target = (str(getattr(options, end)) for end in ("source", "target"))
        upgrade(source, target)
        print(f"Wrote upgraded {what} proto to {target}")

    return run_tool(parser, run, arguments)


def net_text(arguments: Arguments = None) -> int:
    return _main(
        "upgrade_net_proto_text", "prototxt", "NetParameter text", upgrade_net_text, arguments
    )


def net_binary(arguments: Arguments = None) -> int:
    return _main(
        "upgrade_net_proto_binary", "caffemodel", "NetParameter binary", upgrade_net_binary,
        arguments,
    )  # fmt: skip


def solver_text(arguments: Arguments = None) -> int:
    return _main(
        "upgrade_solver_proto_text", "prototxt", "SolverParameter text", upgrade_solver_text,
        arguments,
    )  # fmt: skip

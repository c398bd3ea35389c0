"""fire_model: the models that came along, and an old Caffe checkout that is to use us."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..installation import about_model, copy_model, model_names
from .common import Parser, PlainParser, run
from .old_checkout import link_caffe

COMMANDS = """
  fire_model list                     the models that came along
  fire_model copy lenet my            copy one to my/lenet, to change it
  fire_model link-caffe ~/caffe       let the scripts of a Caffe checkout run these commands
"""


def _parser() -> Parser:
    parser = Parser("fire_model", COMMANDS)
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=PlainParser
    )
    commands.add_parser(
        "list", usage="fire_model list", help="name the models that came along"
    )  # fmt: skip
    copying = commands.add_parser(
        "copy", usage="fire_model copy NAME DIR", help="copy a model, to change it"
    )
    copying.add_argument("name", help="as fire_model list shows it")
    copying.add_argument("folder", type=Path, help="gets a folder of the model's name")
    linking = commands.add_parser(
        "link-caffe",
        usage="fire_model link-caffe DIR",
        help="write build/tools and build/examples into a Caffe checkout",
    )
    linking.add_argument("folder", type=Path, help="the root of the checkout")
    return parser


def _work(options: argparse.Namespace) -> None:
    if options.command == "list":
        names = model_names()
        for name in names:
            print(f"{name:<{max(map(len, names))}}  {about_model(name)}")
    elif options.command == "copy":
        for path in copy_model(options.name, options.folder):
            print(path)
    else:
        for line in link_caffe(options.folder):
            print(line)


def main(arguments: Sequence[str] | None = None) -> int:
    return run(_parser(), _work, arguments)


if __name__ == "__main__":
    sys.exit(main())

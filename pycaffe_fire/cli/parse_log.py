"""parse_log.py: a training log as two tables, as Caffe's script of that name."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ..errors import FireError
from ..report.parse_log import write_tables
from .common import Parser, run

COMMANDS = """
  parse_log.py caffe.log tables/         tables/caffe.log.train and tables/caffe.log.test
"""


def _parser() -> Parser:
    parser = Parser("parse_log.py", COMMANDS)
    flag = parser.add_argument
    flag("logfile_path", metavar="LOG", help="what caffe train or fire_train wrote")
    flag("output_dir", metavar="FOLDER", help="where the tables go")
    flag("--delimiter", default=",", metavar="C", help="between columns (default: a comma)")
    flag("--verbose", action="store_true", help="name the files written")
    return parser


def _parse(options: argparse.Namespace) -> None:
    if len(options.delimiter) != 1:
        raise FireError(f'--delimiter takes one character, got "{options.delimiter}"')
    for path in write_tables(options.logfile_path, options.output_dir, options.delimiter):
        if options.verbose:
            print(f"Wrote {path}")


def main(arguments: Sequence[str] | None = None) -> int:
    return run(_parser(), _parse, arguments)


if __name__ == "__main__":
    sys.exit(main())

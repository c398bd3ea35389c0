"""fire_plot: curves of runs as a plot, and a page with everything worth publishing of one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ..errors import FireError
from ..report.baseline import compare, comparison_table, text_lines, warning
from ..report.curves import draw, panels
from ..report.page import write_page
from ..report.run_facts import title_of
from ..report.runs import read_run
from ..report.style import check_plot_name
from .common import Parser, run
from .plot_grids import GRIDS

COMMANDS = """
  fire_plot runs/lenet/lenet_log.jsonl -o curves.png            loss, scores and rate of a run
  fire_plot runs/a runs/b caffe.INFO -o curves.png --by time    several; Caffe's own logs, too
  fire_plot runs/lenet --html lenet.html                        a page with curves, protocol,
                                                                hyperparameters, hardware and net
  fire_plot runs/p8 runs/p32 --baseline runs/one                speedup at equal accuracy
  fire_plot filters net.caffemodel -o filters.png               weights as images
  fire_plot features deploy.prototxt net.caffemodel cat.jpg --blob conv1 -o conv1.png
                                                                what a net makes of an image
"""


def _parser() -> Parser:
    parser = Parser("fire_plot", COMMANDS)
    flag = parser.add_argument
    flag(
        "runs", nargs="+", metavar="RUN",
        help="a JSON log (PREFIX_log.jsonl), a log of Caffe's, a TensorBoard event file, or a "
        "folder with one",
    )  # fmt: skip
    flag("-o", "--output", metavar="FILE.png", help="draw the curves as a plot")
    flag("--html", metavar="FILE.html", help="write a page that needs nothing else")
    flag(
        "--baseline", metavar="RUN",
        help="the run on one server that the others are compared with: prints times, accuracies "
        "and the speedup at equal accuracy, and adds them to the page",
    )  # fmt: skip
    flag("--by", choices=["iteration", "time"], default="iteration", help="what runs to the right")
    flag(
        "--smooth", type=int, default=1, metavar="N",
        help="average training curves over N displays (default: 1, not at all)",
    )  # fmt: skip
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    if given and given[0] in GRIDS:  # a run of that name is given as ./filters
        parser, work = GRIDS[given[0]]
        return run(parser(), work, given[1:])
    return run(_parser(), _plot, given)


def _plot(options: argparse.Namespace) -> None:
    if not options.output and not options.html and not options.baseline:
        raise FireError("what to make? give -o curves.png, --html page.html, or both")
    if options.smooth < 1:
        raise FireError(f"--smooth needs a number of at least 1, got {options.smooth}")
    if options.output:
        check_plot_name(options.output)
    runs = [read_run(path) for path in options.runs]
    comparison = None
    if options.baseline:
        baseline = read_run(options.baseline)
        comparison = compare(baseline, runs)
        runs = [baseline, *runs]
        if doubt := warning(baseline):
            print(f"fire_plot: {doubt}", file=sys.stderr)
        print("\n".join(text_lines(comparison_table(comparison))))
    if options.output:
        curves = panels(runs, options.by, options.smooth)
        draw(options.output, curves, options.by, title_of(runs))
        print(options.output)
    if options.html:
        write_page(options.html, runs, options.by, options.smooth, comparison)
        print(options.html)


if __name__ == "__main__":
    sys.exit(main())

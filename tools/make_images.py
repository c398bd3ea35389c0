"""Writes the images in docs/images: the live display and the page of a real run of LeNet.

    python tools/make_images.py      # in the root of the checkout, after tools/start.py train

The display is recorded by rich as SVG; the page is photographed by Chromium.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import fields
from pathlib import Path

from rich.console import Console

from pycaffe_fire.cli import fire_plot, train_flags
from pycaffe_fire.parallel.communicator import SerialCommunicator
from pycaffe_fire.report.json_log import JsonLog, log_path
from pycaffe_fire.report.progress import ProgressDisplay
from pycaffe_fire.solver import read_param
from pycaffe_fire.solver.run import RunOptions, make_solver

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
SOLVER = "models/lenet/solver.prototxt"
SHOWN, WIDTH = 640, 92  # iterations after which the display is recorded; columns
PAGE = (1280, 1180)  # pixels


def record_display() -> None:
    """Train LeNet in this folder and keep what the terminal shows after a while."""
    console = Console(
        record=True, width=WIDTH, force_terminal=True, highlight=False, file=io.StringIO()
    )
    options = train_flags.parser().parse(["--solver", SOLVER])
    param = read_param(SOLVER)
    param.display = 10
    asked = RunOptions(**{f.name: getattr(options, f.name) for f in fields(RunOptions)})
    display, log = ProgressDisplay(console), JsonLog(log_path(param.snapshot_prefix))
    console.print(f"[bold]$ fire_train --solver {SOLVER}[/bold]")

    def record(event: object) -> None:
        if getattr(event, "iteration", 0) == SHOWN and not (IMAGES / "display.svg").exists():
            console.print(display.line(WIDTH - 2))
            text = console.export_svg(title="fire_train")
            # rich names a font that lies elsewhere; every reader has one of its own.
            text = re.sub(r"@font-face \{.*?\}", "", text, flags=re.DOTALL)
            (IMAGES / "display.svg").write_text(text.replace("Fira Code", "monospace"))

    solver = make_solver(asked, param, SerialCommunicator(), [display, log, record])
    solver.solve()
    solver.close()
    log.close()


def photograph() -> None:
    """The upper part of the run's page."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if not browser:
        sys.exit("make_images.py: needs Chromium to photograph a page")
    page = Path("page.html").absolute()
    fire_plot.main(["runs/lenet", "--html", str(page), "--smooth", "5"])
    subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         f"--user-data-dir={Path('browser').absolute()}", f"--window-size={PAGE[0]},{PAGE[1]}",
         f"--screenshot={IMAGES / 'report.png'}", page.as_uri()],
        check=True, capture_output=True, timeout=300,
    )  # fmt: skip


def main() -> int:
    IMAGES.mkdir(exist_ok=True)
    (IMAGES / "display.svg").unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in ("models", "data"):
            os.symlink(ROOT / name, name)
        record_display()
        photograph()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""fire_plot: plots and pages of runs from any kind of log."""

from __future__ import annotations

import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pycaffe_fire.cli import fire_plot, fire_train
from pycaffe_fire.report.curves import panels
from pycaffe_fire.report.runs import Point, Run
from pycaffe_fire.report.svg import ticks
from tests.cli.runs import GOLDEN, make_run

VOID = {"meta", "line", "circle", "polyline"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Checker(HTMLParser):
    """Tags must be closed in order, and nothing may come from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        assert not {"src", "href"} & {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def check_page(path: Path) -> Checker:
    checker = Checker()
    checker.feed(path.read_text())
    assert not checker.open
    assert "http" not in checker.text and "url(" not in checker.text
    return checker


def test_a_image_of_several_kinds_of_runs(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    shutil.copy(GOLDEN / "logs" / "caffe_train.log", "a.log")
    shutil.copy("a.log", "b.log")
    assert fire_plot.main(["a.log", "b.log", "-o", "c.png", "--by", "time", "--smooth", "3"]) == 0
    assert (folder / "c.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(p.name for p in folder.iterdir()) == ["a.log", "b.log", "c.png"]


def test_a_page_tells_what_to_publish(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(folder)
    assert fire_train.main(["--solver", "solver.prototxt", "--threads", "1"]) == 0
    assert fire_plot.main([".", "--html", "page.html"]) == 0
    page = check_page(folder / "page.html")
    assert page.seen.count("svg") == 3  # loss, rate, speed: the net has no scores
    for text in (
        "Accuracy protocol", "data.txt", "mean over 2 batches of", "20 iterations of",
        "base_lr", "0.05", "momentum", "conv", "Convolution", "processor", "versions", "epochs",
        "final test/loss",
    ):  # fmt: skip
        assert text in page.text, text


def test_a_page_of_a_log_of_caffes_has_curves_only(folder: Path) -> None:
    shutil.copy(GOLDEN / "logs" / "caffe_train.log", "<b>.log")
    assert fire_plot.main(["<b>.log", "--html", "page.html"]) == 0
    page = check_page(folder / "page.html")
    assert page.seen.count("svg") == 2 and "b" not in page.seen[:4]


def test_refusals(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(GOLDEN / "logs" / "caffe_train.log", "a.log")
    for arguments, message in (
        (["a.log"], "what to make? give -o curves.png"),
        (["no.log", "--html", "x.html"], "no.log: no such file or folder"),
        (["a.log", "-o", "x.doc"], "must end in .png"),
        (["a.log", "--html", "none/x.html"], "cannot be written"),
        (["a.log", "--html", "x.html", "--smooth", "0"], "at least 1"),
    ):
        assert fire_plot.main(arguments) == 1, arguments
        assert message in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert fire_plot.main(["a.log", "-o", "x.png"]) == 1
    assert "pip install pycaffe_fire[plot]" in capsys.readouterr().err
    assert [p.name for p in folder.iterdir()] == ["a.log"]


def test_curves_are_sorted_into_panels() -> None:
    points = [Point(i, 3600.0 * i, float(i % 2)) for i in range(10)]
    run = Run("r", {"test/accuracy": points, "train/loss": points, "train/loss1/loss": points})
    by_time = panels([run], "time", smooth=2)
    assert [panel.title for panel in by_time] == ["loss", "scores"]
    smoothed, accuracy = by_time[0].lines[0], by_time[1].lines[0]
    assert smoothed.points[5] == (5.0, 0.5) and smoothed.raw[5] == (5.0, 1.0)
    assert accuracy.is_test and accuracy.points[5] == (5.0, 1.0)
    several = panels([run, run])
    assert len({line.colour for line in several[0].lines}) == 2
    assert several[0].lines[0].label == "r: train/loss"
    assert [line.style for line in several[0].lines] == ["solid", "dashed"] * 2


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [(0, 10, [0, 2, 4, 6, 8, 10]), (0.07, 0.98, [0, 0.2, 0.4, 0.6, 0.8, 1]), (3, 3, [3])],
)
def test_ticks_are_round(low: float, high: float, found: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(found)

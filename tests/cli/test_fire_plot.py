"""fire_plot: plots and pages of runs from any kind of log."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pycaffe_fire.cli import fire_plot, fire_train
from pycaffe_fire.installation import install_hint
from pycaffe_fire.report.curves import panels
from pycaffe_fire.report.page import page as report_page
from pycaffe_fire.report.runs import Point, Run
from pycaffe_fire.report.svg import chart, ticks
from tests.cli.runs import GOLDEN, make_run, write_solver

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
    assert page.seen.count("figure") == 3  # loss, rate, speed: the net has no scores
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
    assert page.seen.count("figure") == 2 and "b" not in page.seen[:4]


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
    assert install_hint("plot") in capsys.readouterr().err
    assert [p.name for p in folder.iterdir()] == ["a.log"]


def test_curves_are_sorted_into_panels() -> None:
    points = [Point(i, 3600.0 * i, float(i % 2)) for i in range(10)]
    run = Run("r", {"test/accuracy": points, "train/loss": points, "train/loss1/loss": points})
    by_time = panels([run], "time", smooth=2)
    assert [panel.title for panel in by_time] == ["Loss", "Scores"]
    smoothed, accuracy = by_time[0].lines[0], by_time[1].lines[0]
    assert smoothed.points[5] == (5.0, 0.5) and smoothed.raw[5] == (5.0, 1.0)
    assert accuracy.is_test and accuracy.points[5] == (5.0, 1.0)
    several = panels([run, run])
    assert len({line.colour for line in several[0].lines}) == 2
    assert several[0].lines[0].label == "r: train/loss"
    assert [line.style for line in several[0].lines] == ["solid", "dashed"] * 2


def test_rates_that_hold_are_steps_and_speeds_are_smoothed() -> None:
    held = [Point(i, float(i), 0.1 if i < 50 else 0.01) for i in range(100)]
    falling = [Point(i, float(i), 1.0 / (i + 1)) for i in range(100)]
    speed = [Point(i, float(i), 100.0 + 50 * (i % 2)) for i in range(100)]
    rate, fast = panels([Run("r", {"rate": held, "images_per_second": speed})])
    assert rate.lines[0].steps and rate.title == "Learning rate"
    assert not panels([Run("r", {"rate": falling})])[0].lines[0].steps
    assert fast.from_zero and fast.lines[0].raw[50] == (50.0, 100.0)
    assert fast.lines[0].points[50][1] == pytest.approx(120)  # the mean of 5
    drawn = chart(rate, "iteration")
    (points,) = re.findall('<polyline stroke="[^"]*" points="([^"]*)"', drawn)
    pairs = [tuple(map(float, pair.split(","))) for pair in points.split()]
    level = [p for p, q in zip(pairs, pairs[1:], strict=False) if p[0] != q[0] and p[1] != q[1]]
    assert not level and len({y for _, y in pairs}) == 2  # no slope anywhere


def page_of_two(folder: Path) -> Path:
    make_run(folder)
    runs = []
    for name, rate in (("a", "0.05"), ("b", "0.01")):
        write_solver(folder, "random_seed: 5", base_lr=rate)
        assert fire_train.main(["--solver", "solver.prototxt", "--threads", "1"]) == 0
        runs.append(name)
        (folder / name).mkdir()
        (folder / "snap_log.jsonl").rename(folder / name / "snap_log.jsonl")
    assert fire_plot.main([*runs, "--html", "page.html"]) == 0
    return folder / "page.html"


def test_runs_side_by_side(folder: Path) -> None:
    path = page_of_two(folder)
    page = check_page(path)
    text = path.read_text()
    assert "tiny: 2 runs" in page.text and page.seen.count("details") >= 2
    row = re.search(r"<tr([^>]*)><th>base_lr</th>(.*?)</tr>", text)
    assert row and "same" not in row[1] and re.findall("<td>(.*?)</td>", row[2]) == ["0.05", "0.01"]
    same = re.search(r"<tr([^>]*)><th>momentum</th>", text)
    assert same and "same" in same[1]


ZOOM = """<script>
const chart = document.querySelector("svg.chart");
Element.prototype.setPointerCapture = () => {};
function act(kind, x, y) {
  const area = chart.getBoundingClientRect();
  const at = [area.left + x * area.width, area.top + y * area.height];
  chart.dispatchEvent(new PointerEvent(kind, { clientX: at[0], clientY: at[1], pointerId: 1 }));
}
act("pointerdown", 0.3, 0.3); act("pointermove", 0.6, 0.6); act("pointerup", 0.6, 0.6);
document.title = document.querySelector("svg.curves").getAttribute("viewBox");
act("pointermove", 0.5, 0.5);
document.title += "; " + document.querySelector(".tip b").textContent;
chart.dispatchEvent(new MouseEvent("dblclick"));
document.title += "; " + document.querySelector("svg.curves").getAttribute("viewBox");
</script>"""


def test_zoom_and_hover_in_a_browser(folder: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if not browser:
        pytest.skip("no Chromium here to look at a page with")
    points = [Point(i, float(i), 2.0 - i / 100) for i in range(101)]
    page = folder / "zoomed.html"
    text = report_page([Run("r", {"train/loss": points})])
    page.write_text(text.replace("</body>", f"{ZOOM}</body>"))
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
         f"--user-data-dir={folder / 'browser'}", page.as_uri()],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    title = re.search("<title>(.*?)</title>", done.stdout)
    assert title, done.stderr
    zoomed, hover, back = title[1].split("; ")
    whole = [62.0, 12.0, 534.0, 268.0]
    assert [float(v) for v in back.split()] == whole
    x, y, width, height = (float(v) for v in zoomed.split())
    assert (x, width) == pytest.approx((0.3 * 620, 0.3 * 620), abs=1.5)
    assert (y, height) == pytest.approx((0.3 * 320, 0.3 * 320), abs=1.5)
    # The middle of the zoomed plot is the middle of the choice.
    seen = x + (0.5 * 620 - 62) / 534 * width
    assert float(hover.split()[1]) == pytest.approx((seen - 62) / 534 * 100, abs=1)


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [(0, 10, [0, 2, 4, 6, 8, 10]), (0.07, 0.98, [0, 0.2, 0.4, 0.6, 0.8, 1]), (3, 3, [3])],
)
def test_ticks_are_round(low: float, high: float, found: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(found)

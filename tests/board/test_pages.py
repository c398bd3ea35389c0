"""The page in a real browser: what somebody sees, clicks and drops. Screenshots are kept.

Needs Chromium with its driver and selenium; screenshots go to $FIRE_SCREENSHOTS, or to
build/screenshots.
"""

from __future__ import annotations

import base64
import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pycaffe_fire.cli import fire_train
from pycaffe_fire.data import shapes

from .board_cases import CLASSES, EVIL, SOLVER, Server, eventually, image, serving, write_solver
from .test_answers import reference

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
if not CHROMIUM or not DRIVER:
    pytest.skip("chromium and chromedriver are not installed", allow_module_level=True)

SHOTS = Path(os.environ.get("FIRE_SCREENSHOTS", "build/screenshots"))
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--window-size=1280,900",
    "--force-prefers-reduced-motion",
)  # fmt: skip


class Page:
    """A browser tab."""

    def __init__(self, driver: Any, server: Server) -> None:
        self.driver, self.server = driver, server

    def all(self, css: str) -> list[Any]:
        found: list[Any] = self.driver.find_elements("css selector", css)
        return found

    def wait(self, css: str) -> Any:
        return eventually(lambda: self.all(css))[0]

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def texts(self, css: str) -> list[str]:
        """Of all such elements at one moment: the page may replace them at any time."""
        script = "return [...document.querySelectorAll(arguments[0])].map((n) => n.innerText)"
        found: list[str] = self.run(script, css)
        return found

    def text(self, css: str) -> str:
        self.wait(css)
        return "\n".join(self.texts(css)[:1])

    def click(self, css: str) -> None:
        self.run("arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))",
                 self.wait(css))  # fmt: skip

    def open(self, run: str, view: str = "") -> None:
        rows = eventually(self.server.rows)
        self.run(f"location.hash = '#/run/{rows[run]['id']}{view and '/' + view}'")

    def shot(self, name: str) -> None:
        """At 1280 and at 400 pixels, light and dark; neither may need sideways scrolling."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        for width, theme in ((1280, "light"), (400, "dark")):
            self.run("document.documentElement.dataset.theme = arguments[0]", theme)
            self.driver.set_window_size(width, 900)
            time.sleep(0.3)
            tall = self.run("return document.documentElement.scrollHeight")
            self.driver.set_window_size(width, min(3000, tall + 140))
            time.sleep(0.3)
            wide = self.run("return document.documentElement.scrollWidth - innerWidth")
            self.driver.save_screenshot(str(SHOTS / f"{name}_{width}.png"))
            assert wide <= 0, f"{name} is {wide} pixels wider than {width}"
        self.driver.set_window_size(1280, 900)
        self.run("document.documentElement.dataset.theme = 'light'")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield made
    made.quit()


@pytest.fixture
def page(driver: Any, server: Server) -> Iterator[Page]:
    driver.get("about:blank")
    driver.get_log("browser")  # of other tests' servers, which end while a page is open
    driver.get(server.address)
    yield Page(driver, server)
    complaints = [e["message"] for e in driver.get_log("browser") if e["level"] == "SEVERE"]
    assert not complaints  # a refusal by the policy would be one


def points(page: Page, chart: str) -> int:
    found = page.all(f'[data-chart="{chart}"]')
    return int(found[0].get_attribute("data-points") or 0) if found else 0


@contextmanager
def running(case: Path, name: str, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """A solver at work, for as long as the tests want."""
    solver = write_solver(case, name, iterations=10_000_000)
    solver.write_text(solver.read_text().replace("snapshot: 20", "snapshot: 10000000"))
    run = subprocess.Popen(
        [sys.executable, "-m", "pycaffe_fire.cli.fire_train", "--solver", str(solver), *flags],
        cwd=case, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert run.stderr is not None
    try:
        yield run
    finally:
        run.kill()
        run.stderr.read()
        run.wait()


def test_a_live_run_grows_without_reload(page: Page, case: Path) -> None:
    with running(case, "live", "--quiet") as run:
        page.wait(".state.running")
        page.run("window.stays = true")
        page.open("live")
        eventually(lambda: points(page, "loss"))
        chart = page.wait('[data-chart="loss"]')
        before = float(chart.get_attribute("data-last"))
        seen = page.text(".tile b")
        eventually(lambda: float(chart.get_attribute("data-last")) > before + 5)
        eventually(lambda: page.text(".tile b") != seen)
        run.send_signal(signal.SIGINT)  # it saves and ends
        eventually(lambda: "stopped" in page.text("main"))
        assert page.run("return window.stays") is True
    shutil.rmtree(case / "runs" / "live")
    page.driver.back()
    eventually(lambda: len(page.all("tr[data-run]")) == 2)


def test_two_runs_are_compared(page: Page) -> None:
    eventually(lambda: len(page.all("tr[data-run]")) == 2)
    for box in page.all("tbody input[type=checkbox]"):
        if not box.is_selected():
            box.click()
            break
    eventually(lambda: len(page.all('[data-chart="loss"] .u-series')) == 5)  # x, and two of each
    legend = page.text('[data-chart="loss"]')
    assert "good/net: train/loss" in legend and f"{EVIL}/net: train/loss" in legend
    chips = page.texts(".runs .chip")
    assert sorted(chips) == ["base_lr 0.01", "base_lr 0.05"]
    page.click('.segments [data-key="hours"]')
    eventually(lambda: "hours" in page.text('[data-chart="loss"]'))
    page.click('.segments [data-key="epoch"]')
    eventually(lambda: float(page.wait('[data-chart="loss"]').get_attribute("data-last")) == 10)
    page.run("const r = document.querySelector('input[type=range]'); r.value = 4;"
             "r.dispatchEvent(new Event('input'))")  # fmt: skip
    eventually(lambda: page.all('[data-chart="loss"] .u-series.raw'))
    page.click('.segments [data-key="iteration"]')
    chart = page.wait('[data-chart="loss"]')
    eventually(lambda: points(page, "loss") == 40)
    chart.send_keys("+")  # by keyboard, as by mouse: the middle half
    eventually(lambda: 0 < points(page, "loss") < 30)
    chart.send_keys("0")
    eventually(lambda: points(page, "loss") == 40)
    page.shot("runs")
    search = page.wait("input[type=search]")
    search.send_keys("base_lr=0.05")
    eventually(lambda: len(page.all("tr[data-run]")) == 1)
    search.clear()
    search.send_keys(" ")
    eventually(lambda: len(page.all("tr[data-run]")) == 2)


def test_hovering_shows_numbers(page: Page) -> None:
    page.open("good")
    eventually(lambda: points(page, "loss") == 40)
    over = page.wait('[data-chart="loss"] .u-over')
    webdriver.ActionChains(page.driver).move_to_element_with_offset(over, -80, 0).perform()
    last = page.text('[data-chart="loss"] .u-value')
    webdriver.ActionChains(page.driver).move_to_element_with_offset(over, 80, 0).perform()
    eventually(lambda: page.text('[data-chart="loss"] .u-value') != last)


def test_a_range_is_dragged_and_axes_are_logarithmic(page: Page) -> None:
    page.open("good")
    eventually(lambda: points(page, "loss") == 40)
    over = page.wait('[data-chart="loss"] .u-over')
    mouse = webdriver.ActionChains(page.driver)
    mouse.move_to_element_with_offset(over, -60, 0).click_and_hold()
    mouse.move_by_offset(100, 0).release().perform()
    eventually(lambda: 0 < points(page, "loss") < 25)
    webdriver.ActionChains(page.driver).double_click(over).perform()
    eventually(lambda: points(page, "loss") == 40)

    def drawn() -> str:
        script = "return document.querySelector('[data-chart=\"loss\"] canvas').toDataURL()"
        return str(page.run(script))

    def middle() -> float:
        """The iteration under the mouse in the middle of the chart, at one moment."""
        page.run(
            "const over = document.querySelector('[data-chart=\"loss\"] .u-over'),"
            " box = over.getBoundingClientRect();"
            "for (const at of [0.4, 0.5]) over.dispatchEvent(new MouseEvent('mousemove',"
            " {bubbles: true, clientX: box.x + at * box.width, clientY: box.y + 9}))"
        )
        return float(page.text('[data-chart="loss"] .u-value') or "inf")

    def tick(name: str) -> None:
        page.run(
            "[...document.querySelectorAll('.bar label')]"
            ".find((label) => label.innerText === arguments[0]).click()",
            name,
        )

    straight = drawn()
    assert 15 < middle() < 25
    tick("log y")
    eventually(lambda: drawn() != straight)
    tick("log y")
    eventually(lambda: drawn() == straight)
    tick("log x")
    eventually(lambda: drawn() != straight)
    eventually(lambda: middle() <= 10)  # the middle of the decades from 1 to 100
    tick("log x")
    eventually(lambda: drawn() == straight)


def test_one_run_is_shown_whole(page: Page) -> None:
    page.open("good")
    eventually(lambda: points(page, "loss") == 40)
    text = page.text("main")
    for part in ("Accuracy protocol", "Time per layer", "Ranks", "Memory", "Events", "Files"):
        assert part in text
    assert "in iteration 5," in page.text("#iteration")
    assert len(page.all("#iteration .lane i")) >= 4
    assert "net_iter_40.caffemodel" in page.text("#events")
    assert "saved" in page.text("#tail")
    page.shot("run")


def test_a_layer_opens(page: Page) -> None:
    page.open("good", "net")
    node = page.wait('[data-layer="conv"]')
    page.run("arguments[0].focus()", node)
    node.send_keys("\ue007")  # Enter: boxes are reachable by keyboard
    eventually(lambda: "162" in page.text("#layer") or "168" in page.text("#layer"))
    text = page.text("#layer")
    assert "16 × 6 × 10 × 10" in text and "num_output: 6" in text
    drawn = "const i = document.querySelector('#layer .filters'); return i && i.naturalWidth > 10"
    eventually(lambda: page.run(drawn))
    assert len(page.all("#layer canvas.heat")) >= 6  # two blobs: now, and over time twice
    assert page.all('[data-chart="conv[0]: |update| / |weights|"]')
    view = page.wait(".netbox svg").get_dom_attribute("viewBox")
    page.click('[aria-label="Zoom in"]')
    assert page.wait(".netbox svg").get_dom_attribute("viewBox") != view
    page.shot("net")


def test_data_is_browsed(page: Page) -> None:
    page.open("good", "data")
    eventually(lambda: len(page.all(".thumbs img")) == 24)
    page.click("#survey")
    page.wait("#counts")
    assert "All records can be used" in page.text("#problems")
    select = pytest.importorskip("selenium.webdriver.support.ui").Select
    select(page.all(".bar select")[1]).select_by_value("1")
    eventually(lambda: {text.split("\n")[0] for text in page.texts(".thumbs figcaption")} ==
               {"1: green"})  # fmt: skip
    eventually(lambda: page.run("return [...document.querySelectorAll('.thumbs img')]"
                                ".slice(0, 4).every((i) => i.naturalWidth > 10)"))  # fmt: skip
    page.shot("data")


BOXES = """
layer { name: "data" type: "AnnotatedData" top: "data" top: "label"
  data_param { source: "shapes_train_lmdb" batch_size: 2 backend: LMDB }
  transform_param { resize_param { height: 40 width: 60 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 1 } }
layer { name: "sum" type: "Reduction" bottom: "ip" top: "sum" loss_weight: 1 }
layer { name: "rest" type: "Silence" bottom: "label" }
"""


def test_boxes_of_objects_are_drawn(driver: Any, tmp_path: Path) -> None:
    """Over the images, which are letterboxed: an object of the left half lies in its left half."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "SPLITS", {"train": 4})
        patch.chdir(tmp_path)
        shapes.make_shapes(tmp_path)
        (tmp_path / "net.prototxt").write_text(BOXES)
        text = SOLVER.format(rate=0.001, iterations=1, name="boxes")
        (tmp_path / "solver.prototxt").write_text(
            text.replace("test_iter: 3 test_interval: 10", "")
        )
        assert fire_train.main(["--solver", "solver.prototxt"]) == 0
    scenes = list(shapes.scenes("train", 0, 4))
    with serving(tmp_path / "runs") as server:
        driver.get("about:blank")
        driver.get(server.address)
        page = Page(driver, server)
        page.open("boxes", "data")
        eventually(lambda: len(page.all(".thumbs rect")) == sum(len(s.shapes) for s in scenes))
        eventually(lambda: page.run("return document.querySelector('.boxed svg').viewBox.baseVal"
                                    ".width > 0"))  # fmt: skip
        image, rect = page.run(
            "const f = document.querySelector('.boxed'); const r = (n) => { const b = "
            "n.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; };"
            "return [r(f.querySelector('img')), r(f.querySelector('rect'))]"
        )
        first = scenes[0].shapes[0]
        wide, high = image[2] - image[0], image[3] - image[1]
        shown = wide * 40 / 60  # as high as an image of 40 x 60 is in a square
        for low, at in ((first.xmin, 0), (first.xmax, 2)):
            assert rect[at] - image[0] == pytest.approx(low / shapes.SIZE * wide, abs=2)
        for low, at in ((first.ymin, 1), (first.ymax, 3)):
            place = (high - shown) / 2 + low / shapes.SIZE * shown
            assert rect[at] - image[1] == pytest.approx(place, abs=2)
        names = page.run("return [...document.querySelectorAll('.boxed title')].map((t) => "
                         "t.textContent)")  # fmt: skip
        assert names[0].startswith(str(first.label))
        page.shot("boxes")


def test_the_confusion_matrix_is_numpys(page: Page, case: Path) -> None:
    page.open("good", "results")
    eventually(lambda: page.all("#start") or page.all("#matrix"))  # another test may have run it
    if page.all("#start"):
        page.click("#start")
    page.wait("#matrix")
    found = [
        [int(page.text(f'[data-cell="{i},{j}"]') or 0) for j in range(CLASSES)]
        for i in range(CLASSES)
    ]
    matrix, scores, labels = reference(case)
    assert found == matrix.tolist()
    assert len(page.all("#hardest img")) == int((scores.argmax(1) != labels).sum())
    page.shot("results")


DROP = """
const bytes = Uint8Array.from(atob(arguments[0]), (c) => c.charCodeAt(0));
const data = new DataTransfer();
data.items.add(new File([bytes], arguments[1], {type: "image/png"}));
document.getElementById("drop").dispatchEvent(new DragEvent("drop", {dataTransfer: data}));
"""


def dropped(pixels: np.ndarray[Any, Any]) -> str:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return base64.b64encode(out.getvalue()).decode()


def test_an_image_is_dropped(page: Page, case: Path) -> None:
    page.open("good", "try")
    page.wait("select")
    _, scores, labels = reference(case)
    first = image(int(labels[0]), 5000)[::-1].transpose(1, 2, 0).copy()
    page.run(DROP, dropped(first), EVIL)
    page.wait("#answer .hbar")
    names = ["0: blue", "1: green", "2: red <b>"]
    shown = [text.split("\n")[0] for text in page.texts("#answer .hbar")]
    assert shown == [names[i] for i in np.argsort(-scores[0])]
    eventually(lambda: page.run("return document.getElementById('activations').naturalWidth > 10"))
    page.click("#occlude")
    page.wait("#occlusion")
    page.shot("try")
    page.run(DROP, base64.b64encode(b"no image").decode(), "x.png")
    assert "known kind" in page.text("#refused")
    page.driver.get_log("browser")  # the refusal is told there, too


def test_names_are_never_markup(page: Page) -> None:
    """Names of runs, nets and layers with scripts in them are text everywhere."""
    for view in ("", "net", "data", "results", "try"):
        page.open(EVIL, view)
        eventually(lambda: EVIL in page.text("h1"))
        if view == "net":
            page.click('[data-layer="conv"]')
            page.wait(f'#layer [data-key="{EVIL}"]').click()
            eventually(lambda: page.text("#layer h2") == EVIL)
        assert not page.all('img[src="x"]') and page.driver.title != "pwned"
        assert not page.all("main script")


def test_without_the_token_there_is_no_page(driver: Any, server: Server) -> None:
    driver.delete_all_cookies()
    driver.get(f"http://{server.host}:{server.port}/")
    assert "open the address that fire_board printed" in driver.page_source
    driver.get(f"http://{server.host}:{server.port}/?token=wrong")
    assert "open the address that fire_board printed" in driver.page_source
    driver.get(server.address)
    eventually(lambda: driver.find_elements("css selector", "tr[data-run]"))
    assert "token" not in driver.current_url  # nor in the history
    driver.get_log("browser")


def test_the_page_is_small() -> None:
    import pycaffe_fire.board

    static = Path(pycaffe_fire.board.__file__).parent / "static"
    own = [p for p in static.rglob("*") if p.is_file() and "uplot" not in p.parts]
    assert sum(p.stat().st_size for p in own) < 120_000
    text = "".join(p.read_text() for p in own if p.suffix in (".html", ".js", ".css"))
    assert "https://" not in text and "innerHTML" not in text


def test_a_board_runs_beside_a_run_and_ends_with_it(case: Path) -> None:
    with running(case, "beside", "--board") as run:  # it is killed: the worst end there is
        assert run.stderr is not None
        address = run.stderr.readline().strip().removeprefix("fire_board: ")
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(address, timeout=60) as answer:
            assert b"fire_board" in answer.read()
    port = int(address.split(":")[2].split("/")[0])

    def closed() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) != 0

    eventually(closed)


def test_other_machines_need_the_token_too(case: Path) -> None:
    with serving(case / "runs", "--host", "0.0.0.0") as made:
        here = Server("127.0.0.1", made.port, made.token, made.process)
        assert here.ask("/")[0] == 200
        assert here.ask("/", authorization="none")[0] == 403
        assert here.ask("/", host=f"10.1.2.3:{made.port}")[0] == 200  # addresses cannot be rebound
        assert here.ask("/", host=f"evil.example:{made.port}")[0] == 403

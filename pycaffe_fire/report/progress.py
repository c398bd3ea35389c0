"""A live display of a run on a terminal: one line that moves, and what is worth keeping above it.

The line is drawn a few times a second by the training thread itself; drawing it takes about a
quarter of a millisecond, so the display costs less than a thousandth of the time.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ..backend.kernel_cache import cache_folder
from ..installation import SAID_BY_ALL_RANKS
from ..parallel.launch import ERASE_LINE, TERMINAL_VARIABLE
from ..solver.events import (
    Event,
    Finished,
    NotFinite,
    Saved,
    Started,
    Tested,
    Testing,
    Timed,
    Trained,
)
from .glog import stderr_handler
from .text import header, time_lines

REFRESH_SECONDS = 0.25
MEMORY_SECONDS = 5.0  # speed is a mean over about this time
LOSS_MEMORY = 0.95  # of one iteration to the next: a mean over about 20
MIN_BAR, MAX_BAR = 8, 40


def job_console() -> Console:
    """Standard error; that of a rank which `fire_train -n` started ends at its terminal."""
    width = os.environ.get(TERMINAL_VARIABLE, "")
    if width.isdecimal() and int(width):
        return Console(stderr=True, highlight=False, force_terminal=True, width=int(width))
    return Console(stderr=True, highlight=False)


def shows(console: Console) -> bool:
    """Is it a terminal on which a line can be drawn again?"""
    return console.is_terminal and not console.is_dumb_terminal


def rank_handler(console: Console, rank: int) -> logging.Handler:
    """For warnings of a rank without a display; of what all ranks say, rank 0's is enough."""
    handler = ConsoleHandler(console, erase=True) if shows(console) else stderr_handler()
    if rank:
        handler.addFilter(lambda record: not hasattr(record, SAID_BY_ALL_RANKS))
    return handler


class Meter:
    """Numbers on the way: smoothed loss, images per second, and how long it will take."""

    def __init__(self, run: Started) -> None:
        self.iteration, self.max_iter = run.iteration, run.param.max_iter
        self._batch, self._interval = run.batch, run.param.test_interval
        self._work = self._time = 0.0
        self._loss_sum = self._loss_weight = 0.0
        self.test_seconds = 0.0

    def add(self, event: Trained, sound: bool = True) -> None:
        """Count an iteration; the loss of one that is not sound would stay in the mean."""
        self.iteration = event.iteration + 1
        forget = math.exp(-event.seconds / MEMORY_SECONDS)
        self._work = self._work * forget + self._batch
        self._time = self._time * forget + event.seconds
        if sound:
            self._loss_sum = self._loss_sum * LOSS_MEMORY + event.loss
            self._loss_weight = self._loss_weight * LOSS_MEMORY + 1

    @property
    def started(self) -> bool:
        return self._time > 0

    @property
    def loss(self) -> float:
        return self._loss_sum / self._loss_weight if self._loss_weight else math.nan

    @property
    def speed(self) -> float:
        return self._work / self._time

    @property
    def seconds_left(self) -> float:
        train: float = (self.max_iter - self.iteration) * self._batch / self.speed
        interval = self._interval
        tests = self.max_iter // interval - self.iteration // interval if interval else 0
        return train + tests * self.test_seconds


class ProgressDisplay:
    """An observer with a line at the bottom of the terminal, between `with` and its end."""

    def __init__(self, console: Console, times: bool = False) -> None:
        """`times`: a line for each rank that says where its time goes."""
        self.console, self._shows_times = console, times
        self._live = Live(
            console=console, auto_refresh=False, transient=True, redirect_stderr=False,
            redirect_stdout=False,
        )  # fmt: skip
        self._meter: Meter | None = None
        self._tested: list[str] = []
        self._testing: Testing | None = None
        self._test_began = self._began = 0.0
        self._drawn = 0.0
        self._broken: int | None = None  # the iteration that was skipped last
        self._times: list[str] = []  # where time went last, on each rank
        self._compiling = ""

    def __enter__(self) -> ProgressDisplay:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._live.stop()

    def __call__(self, event: Event) -> None:
        # A terminal that is gone (a closed window, SIGHUP) must not end a training run.
        with contextlib.suppress(OSError):
            self._show(event)

    def _show(self, event: Event) -> None:
        self._compiling = ""
        match event:
            case Started():
                self._started(event)
            case Timed() if self._shows_times:
                self._times = time_lines(event)
            case Trained() if self._meter:
                self._meter.add(event, event.iteration != self._broken)
                self._testing = None
            case Testing():
                if event.done == 0:
                    self._test_began = time.perf_counter()
                self._testing = event
            case Tested():
                self._tests_done(event)
            case Saved(what="state"):
                self.note("snapshot", event.path)
            case NotFinite() if event.done != "stopped":
                self._broken = event.iteration
                self.note("not finite", f"{event.what}; {event.done}")
            case Finished():
                self._finished(event)
                return
        now = time.perf_counter()
        if now - self._drawn >= REFRESH_SECONDS:
            self._drawn = now
            self._draw()

    def _draw(self) -> None:
        # A Ctrl-C is echoed after the line; if that wrapped, the line could not be erased.
        room = self.console.width - len("^C^C ")
        lines = [_cropped(text, "dim") for text in self._times]
        lines.append(_cropped(self._compiling) if self._compiling else self.line(room))
        self._live.update(Group(*lines), refresh=True)

    def compiling(self, kernels: int, seconds: float) -> None:
        """Say that time goes into compiling, which can be long and is needed once."""
        done = f": {kernels} done, {clock(seconds)}" if kernels else ""
        self._compiling = f"compiling kernels, once (kept in {cache_folder()}){done} ..."
        with contextlib.suppress(OSError):
            self._draw()

    def _started(self, run: Started) -> None:
        self._meter = Meter(run)
        self._began = time.perf_counter()
        self.console.print(Text(run.name or "unnamed net", "bold"))
        for line in header(run):
            self.console.print(Text(f"  {line}", "dim"))

    def note(self, what: str, text: str) -> None:
        """A line to keep, with the iteration it belongs to."""
        meter = self._meter
        at = f"{meter.iteration:>{len(str(meter.max_iter))}}  " if meter else ""
        self.console.print(Text.assemble((at, "cyan"), (f"{what:<9} ", "bold"), text))

    def _tests_done(self, event: Tested) -> None:
        if self._meter:
            self._meter.test_seconds = time.perf_counter() - self._test_began
        self._testing = None
        rest = [f"{o.name} = {o.value:g}" for o in event.outputs]
        self.note("test" if event.net == 0 else f"test #{event.net}", ", ".join(rest))
        if event.net == 0:
            scores = [o for o in event.outputs if not o.loss_weight] or event.outputs
            self._tested = [f"{o.name} {o.value:.4g}" for o in scores[:2]]

    def _finished(self, event: Finished) -> None:
        self._live.stop()
        for text in self._times:
            self.console.print(_cropped(text, "dim"))
        took = clock(time.perf_counter() - self._began)
        self.note("stopped" if event.early else "done", f"after {took}")

    def line(self, width: int) -> Text:
        """The moving line, with as much as fits: what matters least goes first."""
        meter = self._meter
        if meter is None:
            return Text()
        count = f"{meter.iteration:>{len(str(meter.max_iter))}}/{meter.max_iter}"
        parts = [f"testing {self._testing.done}/{self._testing.passes}"] if self._testing else []
        if meter.started:
            parts.append(f"loss {meter.loss:.4g}")
            parts.append(f"{clock(meter.seconds_left)} left")
        parts += self._tested
        if meter.started:
            parts.append(f"{meter.speed:,.0f} images/s")
        room = width - len(count) - 2
        while parts and sum(len(p) + 2 for p in parts) + MIN_BAR > room:
            parts.pop()
        bar = min(MAX_BAR, room - sum(len(p) + 2 for p in parts))
        return _draw(count, meter.iteration / max(1, meter.max_iter), bar, parts)


def _cropped(text: str, style: str = "") -> Text:
    return Text(text, style, no_wrap=True, overflow="crop")


def _draw(count: str, part: float, bar: int, parts: Sequence[str]) -> Text:
    full = max(0, min(bar, round(bar * part)))
    line = Text(no_wrap=True, overflow="crop", end="")
    line.append(f"{count}  ", "cyan")
    line.append("━" * full, "green")
    line.append("━" * (bar - full), "bright_black")
    for text in parts:
        line.append(f"  {text}")
    return line


def clock(seconds: float) -> str:
    """`0:07`, `12:30`, `5:00:00`, `3 d 5 h`"""
    whole = int(seconds + 0.5)
    if whole >= 100 * 3600:
        return f"{whole // 86400} d {whole % 86400 // 3600} h"
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


class ConsoleHandler(logging.Handler):
    """Warnings above the moving line; `erase` it first where another rank has drawn it."""

    def __init__(self, console: Console, erase: bool = False) -> None:
        super().__init__()
        self._console, self._erase = console, erase

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):
            if self._erase:
                self._console.file.write(ERASE_LINE)
            self._console.print(Text(record.getMessage(), "yellow"))

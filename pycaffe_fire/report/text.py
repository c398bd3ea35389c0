"""A run in words: Caffe's log lines word for word, a header before them, the results after them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from ..backend.kernel_cache import cache_folder
from ..parallel.leaves import Output
from ..solver.evaluation import Precisions
from ..solver.events import (
    Evaluated,
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
from ..solver.rates import base_rate, warm_up

log = logging.getLogger("pycaffe_fire")


def header(run: Started) -> list[str]:
    """What a reader needs to know to judge or repeat the run."""
    param = run.param
    per_leaf = run.batch // (run.leaves * param.iter_size)
    parts = "1 leaf" if run.leaves == 1 else f"{run.leaves} leaves of {per_leaf}"
    passes = f", {param.iter_size} passes each" if param.iter_size > 1 else ""
    least, most = (n * run.batch // run.leaves for n in _leaves_each(run))
    each = f"{least}" if least == most else f"{least} to {most}"
    shares = f", {each} on each of {run.ranks} ranks" if run.ranks > 1 else ""
    interval, start = warm_up(param)
    warmup = f" (rising from {start:g} over {interval} iterations)" if interval else ""
    return [
        f"Batch: {run.batch} samples in all{shares} ({parts}{passes})",
        f"Learning rate: {base_rate(param):g}{warmup}, policy {param.lr_policy}, "
        f"solver {param.type}",
        *run.notes,
        f"Backend: {run.backend}",
        *([f"Communicator: {run.communicator}"] if run.ranks > 1 else []),
        *([f"Interconnect: {'; '.join(map(str, run.job.links))}"] if run.job.links else []),
        f"Seed: {run.seed}",
        *([f"Going on from iteration {run.iteration}"] if run.iteration else []),
    ]


def _leaves_each(run: Started) -> tuple[int, int]:
    """The fewest and the most leaves that a rank has."""
    return run.leaves // run.ranks, -(-run.leaves // run.ranks)


def describe(output: Output) -> str:
    """`accuracy = 0.9912`; a loss shows its weight as well. Six digits, as C++ streams print."""
    text = f"{output.name} = {output.value:g}"
    if output.loss_weight:
        weighted = output.loss_weight * output.value
        text += f" (* {output.loss_weight:g} = {weighted:g} loss)"
    return text


def precision_lines(found: Iterable[Precisions]) -> list[str]:
    """`class3: 0.91`, the average precision of each class as SSD prints it."""
    return [f"class{label}: {value:g}" for p in found for label, value in p.classes.items()]


def time_lines(event: Timed) -> list[str]:
    """Where time went on each rank, and which was slowest before it had to wait for the others."""
    busy = [times.total - times.exposed for times in event.ranks]
    lines = [f"    Time on rank {i}: {times.text()}" for i, times in enumerate(event.ranks)]
    if len(busy) > 1:
        lines.append(f"    Slowest rank: {busy.index(max(busy))}")
    return lines


class CaffeLog:
    """An observer that logs a run as `caffe train` does, so that parsers of its logs work."""

    def __init__(self, display: int = 0, times: bool = False) -> None:
        self._display = display
        self._times = times  # of every rank, with every display
        self._told_of_compiling = False
        self._since = time.perf_counter()
        self._since_iteration = 0

    def __call__(self, event: Event) -> None:
        match event:
            case Started():
                self._started(event)
            case Trained(display=True):
                self._trained(event)
            case Timed() if self._times:
                for line in time_lines(event):
                    log.info(line)
            case Testing(done=0):
                log.info("Iteration %d, Testing net (#%d)", event.iteration, event.net)
            case Tested():
                if event.loss is not None:
                    log.info("Test loss: %g", event.loss)
                for line in precision_lines(event.classes):
                    log.info(line)
                self._outputs("Test", event.outputs)
            case Saved():
                what = "" if event.what == "weights" else "solver state "
                log.info("Snapshotting %sto %s file %s", what, event.format, event.path)
            case Evaluated():
                log.info("Iteration %d, loss = %g", event.iteration, event.loss)
            case NotFinite() if event.done != "stopped":  # the error that ends a run says the rest
                log.warning("%s; %s", event.what, event.done)
            case Finished():
                log.info("Optimization stopped early." if event.early else "Optimization Done.")

    def compiling(self, kernels: int, seconds: float) -> None:
        """Say once that time goes into compiling; see `on_compiling`."""
        if not self._told_of_compiling:
            self._told_of_compiling = True
            log.info("Compiling kernels, once; they are kept in %s", cache_folder())

    def _started(self, run: Started) -> None:
        for line in header(run):
            log.info(line)
        log.info("Starting Optimization")
        log.info("Solving %s", run.name)
        log.info("Learning Rate Policy: %s", run.param.lr_policy)
        self._display = run.param.display
        self._since, self._since_iteration = time.perf_counter(), run.iteration

    def _trained(self, event: Trained) -> None:
        now = time.perf_counter()
        seconds, iterations = now - self._since, event.iteration - self._since_iteration
        self._since, self._since_iteration = now, event.iteration
        log.info(
            "Iteration %d (%g iter/s, %gs/%d iters), loss = %g",
            event.iteration, iterations / seconds, seconds, self._display, event.loss,
        )  # fmt: skip
        self._outputs("Train", event.outputs)
        log.info("Iteration %d, lr = %g", event.iteration, event.rate)

    @staticmethod
    def _outputs(which: str, outputs: list[Output]) -> None:
        for number, output in enumerate(outputs):
            log.info("    %s net output #%d: %s", which, number, describe(output))


class Results:
    """An observer that keeps what to tell at the end: the last test of every test net."""

    def __init__(self) -> None:
        self._tests: dict[int, Tested] = {}
        self._last: Trained | None = None
        self._iteration = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, Tested):
            self._tests[event.net] = event
        elif isinstance(event, Trained):
            self._last = event
        elif isinstance(event, Finished):
            self._iteration = event.iteration

    def lines(self) -> list[str]:
        """`accuracy = 0.9912` and the like; the training loss if nothing was tested."""
        if not self._tests:
            return [f"training loss = {self._last.loss:g}"] if self._last else []
        told = []
        for net, test in sorted(self._tests.items()):
            where = f"test net #{net}: " if len(self._tests) > 1 else ""
            when = "" if test.iteration == self._iteration else f" (iteration {test.iteration})"
            told += [f"{where}{o.name} = {o.value:g}{when}" for o in test.outputs]
        return told

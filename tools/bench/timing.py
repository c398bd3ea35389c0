"""Timing on a shared machine: contenders take turns, and samples others disturbed do not count.

Each contender is a process of its own that works only when told to through a pipe. Nothing here
imports the package, so that a contender's memory holds only what it needs itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

SAMPLE_SECONDS = 0.4  # /proc/stat counts in hundredths, so shorter samples cannot be judged
QUIET_SECONDS = 0.1


class BenchError(Exception):
    """A failure to tell the user about; the text is the whole explanation."""


# Samples.


@dataclass(frozen=True)
class Sample:
    """Seconds per phase of one step, CPU seconds of the step over all threads, the share of all
    cores that others used meanwhile, and the seconds of every single step that the means are of."""

    phases: dict[str, float]
    cpu: float
    foreign: float
    steps: Sequence[float] = ()

    def of(self, phase: str) -> float:
        """A phase, `cpu`, or one of the sums `pass` (forward, backward) and `step` (all)."""
        if phase == "cpu":
            return self.cpu
        if phase == "pass":
            return self.phases["forward"] + self.phases["backward"]
        return sum(self.phases.values()) if phase == "step" else self.phases[phase]


@dataclass(frozen=True)
class Summary:
    """Medians and minima in seconds over the samples that count."""

    median: dict[str, float]
    minimum: dict[str, float]
    samples: int
    clean: int
    foreign: float  # the worst among the samples that count


def least_disturbed(samples: Sequence[Sample], want: int, tolerance: float) -> list[Sample]:
    """All clean samples; when fewer than `want` are, the `want` least disturbed ones."""
    clean = [s for s in samples if s.foreign < tolerance]
    return clean if len(clean) >= want else sorted(samples, key=lambda s: s.foreign)[:want]


def summarize(samples: Sequence[Sample], want: int, tolerance: float) -> Summary:
    used = least_disturbed(samples, want, tolerance)
    phases = [*used[0].phases, "pass", "step", "cpu"]
    return Summary(
        median={p: statistics.median(s.of(p) for s in used) for p in phases},
        minimum={p: min(s.of(p) for s in used) for p in phases},
        samples=len(used),
        clean=sum(s.foreign < tolerance for s in used),
        foreign=max(s.foreign for s in used),
    )


def busy_seconds() -> float | None:
    """CPU seconds all processes of this machine have used; None where nobody counts them."""
    try:
        with open("/proc/stat") as file:
            user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
    except (OSError, ValueError):
        return None
    ticks = user + nice + system + irq + softirq + steal
    return ticks / float(os.sysconf("SC_CLK_TCK"))


def _foreign_share(before: float | None, own: float, seconds: float) -> float:
    after = busy_seconds()
    if before is None or after is None:
        return 0.0
    return max(0.0, after - before - own) / (seconds * (os.cpu_count() or 1))


class Stopwatch:
    """Splits a step into phases; a step calls `lap` after each."""

    def __init__(self) -> None:
        self.phases: dict[str, float] = {}
        self._last = time.perf_counter()

    def restart(self) -> None:
        self._last = time.perf_counter()

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.phases[phase] = self.phases.get(phase, 0.0) + now - self._last
        self._last = now


class Repeater:
    """Runs a contender's step often enough for one sample."""

    def __init__(self, step: Callable[[Stopwatch], None]) -> None:
        self._step = step
        self._count = 1

    def warm(self) -> None:
        """Settle, and choose how many steps make a sample."""
        self._step(Stopwatch())  # plans, compiles and allocates
        watch = Stopwatch()
        self._step(watch)
        self._count = max(1, round(SAMPLE_SECONDS / sum(watch.phases.values())))

    def sample(self) -> dict[str, Any]:
        """The mean of some steps, as the fields of a Sample."""
        busy, cpu, began = busy_seconds(), time.process_time(), time.perf_counter()
        watch, steps = Stopwatch(), []
        for _ in range(self._count):
            watch.restart()
            start = time.perf_counter()
            self._step(watch)
            steps.append(time.perf_counter() - start)
        seconds, own = time.perf_counter() - began, time.process_time() - cpu
        phases = {phase: total / self._count for phase, total in watch.phases.items()}
        foreign = _foreign_share(busy, own, seconds)
        return {"phases": phases, "cpu": own / self._count, "foreign": foreign, "steps": steps}


# Contenders, seen from the bench.


def environment(threads: int, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a contender inherits: OpenMP and malloc as they come, whatever the caller had set.

    OpenMP's own default lets idle threads spin for a few milliseconds, then sleep; that is what
    every user gets, and short enough not to disturb the contender whose turn is next.
    """
    tuned = ("OMP_", "GOMP_", "KMP_", "MKL_", "MALLOC_", "GLIBC_TUNABLES")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(tuned)}
    return {**kept, "OMP_NUM_THREADS": str(threads), **(extra or {})}


class Worker:
    """One contender: a process that does what it is asked and sleeps otherwise."""

    def __init__(
        self, name: str, script: str, env: Mapping[str, str], python: str = sys.executable
    ) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [python, script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(env),
            text=True,
        )

    def ask(self, command: str, **arguments: Any) -> Any:
        """Have `command` done and return its answer."""
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError):  # no answer comes then: told apart below
            self._process.stdin.write(json.dumps([command, arguments]) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            reason = "killed, perhaps for want of memory" if code == -9 else f"exit code {code}"
            raise BenchError(f"the {self.name} process ended during {command!r} ({reason})")
        answer = json.loads(line)
        if "error" in answer:
            raise BenchError(f"{self.name}: {answer['error']}")
        return answer["result"]

    def close(self) -> None:
        """End the process; it leaves by itself when its input ends."""
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def wait_for_quiet(tolerance: float, until: float) -> None:
    """Return when the machine is idle, or at the time `until`."""
    while True:
        before = busy_seconds()
        time.sleep(QUIET_SECONDS)
        if _foreign_share(before, 0.0, QUIET_SECONDS) <= tolerance or time.monotonic() > until:
            return


def interleave(
    workers: Sequence[Worker], want: int, tolerance: float, limit: float
) -> dict[str, list[Sample]]:
    """Samples of all workers in turn, until each has `want` clean ones or `limit` seconds passed.

    At least `want` rounds are run, however long they take.
    """
    samples: dict[str, list[Sample]] = {worker.name: [] for worker in workers}
    until, rounds = time.monotonic() + limit, 0
    while True:
        for worker in workers:
            wait_for_quiet(tolerance, until)
            samples[worker.name].append(Sample(**worker.ask("sample")))
        rounds += 1
        clean = [sum(s.foreign < tolerance for s in taken) for taken in samples.values()]
        if min(clean) >= want or (rounds >= want and time.monotonic() > until):
            return samples


# Contenders, seen from inside.


class Contender(ABC):
    """What every contender answers; a subclass says what a step is, and can take one when `warm`
    is called."""

    @abstractmethod
    def step(self, watch: Stopwatch) -> None: ...

    @cached_property
    def _repeater(self) -> Repeater:
        return Repeater(self.step)

    def warm(self) -> None:
        self._repeater.warm()

    def sample(self) -> dict[str, Any]:
        return self._repeater.sample()

    def memory(self) -> int:
        return peak_memory()


def serve(commands: Mapping[str, Callable[..., Any]], expected: type[Exception]) -> None:
    """Answer commands until the input ends; errors of type `expected` are answers too."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libraries print must not end up among the answers
    for line in sys.stdin:
        command, arguments = json.loads(line)
        try:
            answer = {"result": commands[command](**arguments)}
        except (expected, BenchError) as error:
            answer = {"error": str(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def forget_peak_memory() -> None:
    """Let peak memory count from now on (where the kernel lets us)."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def peak_memory() -> int:
    """The most memory this process had resident, in bytes; 0 where the kernel does not say."""
    with contextlib.suppress(OSError), open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0

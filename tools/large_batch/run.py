"""Small against large batches: what a scaled learning rate is good for.

python tools/large_batch/run.py digits               LeNet, batch 64 and 1024: about half an hour
python tools/large_batch/run.py cifar10 --data data  a quick net, batch 100 and 1600: about an hour
python tools/large_batch/run.py cifar10_full --data data   Caffe's full net over 140 epochs: days
python tools/large_batch/run.py digits --draw        only the plot and the table, from its results

Every run is the command fire_train as a user would start it: the solver has the schedule of the
small batch, and the flags make that of the large one. cifar10_data.py prepares CIFAR-10.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pycaffe_fire.errors import FireError
from pycaffe_fire.report.style import dress, new_figure, save
from pycaffe_fire.schema.files import replacing

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CHANCE = 0.1  # of ten classes


@dataclass(frozen=True)
class Case:
    """A way to train: its name, fire_train's flags, seeds, settings beside the experiment's, and
    how many times the experiment's epochs it runs (with every step of the rate as much later)."""

    name: str
    flags: tuple[str, ...]
    seeds: int
    color: str
    settings: str = ""
    length: int = 1


@dataclass(frozen=True)
class Experiment:
    """A net's text, the solver of its small batch (with a test every `interval` iterations), and
    the ways to train it."""

    title: str
    net: Callable[[], str]
    solver: str
    batch: int
    images: int
    iterations: int
    interval: int
    cases: tuple[Case, ...]
    least: float  # where the plot's accuracies begin, in %

    @property
    def tests(self) -> int:
        return self.iterations // self.interval + 1

    def epochs(self, case: Case) -> list[float]:
        each = case.length * self.interval * self.batch / self.images
        return [i * each for i in range(self.tests)]


def shipped(model: str) -> str:
    return (ROOT / "models" / model / "train_val.prototxt").read_text()


def narrow_quick() -> str:
    """cifar10_quick with half of its channels, fillers that fit any input, and pixels within 1."""
    text = shipped("cifar10_quick")
    text = re.sub(r"num_output: (32|64)", lambda found: f"num_output: {int(found[1]) // 2}", text)
    text = re.sub(r'type: "gaussian"\s+std: \S+', 'type: "xavier"', text)
    return text.replace("transform_param {", "transform_param {\n    scale: 0.0078125")


# The rate falls linearly with the share of the run that is done.
DIGITS_SOLVER = """
base_lr: 0.01 lr_policy: "poly" power: 1 momentum: 0.9 weight_decay: 0.0005 clip_gradients: 1
test_iter: 40
"""
LINEAR_1024 = ("--batch", "1024", "--scale-lr", "linear")
DIGITS = Experiment(
    "LeNet on digits", lambda: shipped("lenet"), DIGITS_SOLVER, 64, 20_000, 3200, 320,
    (
        Case("batch 64", (), 3, "black"),
        Case("batch 1024, rate x 16", (*LINEAR_1024, "--warmup", "60"), 3, "tab:blue"),
        Case("batch 1024, rate x 4", ("--batch", "1024", "--scale-lr", "sqrt", "--warmup", "60"), 1,
             "tab:green"),
        Case("batch 1024, rate x 16, no warm-up", (*LINEAR_1024, "--warmup", "0"), 1, "tab:orange"),
        Case("batch 1024, same rate", ("--batch", "1024"), 1, "tab:red"),
    ),
    60,
)  # fmt: skip

LARGE = ("--batch", "1600", "-n", "2")
LINEAR = (*LARGE, "--scale-lr", "linear")


def cifar10_cases(lars: str) -> tuple[Case, ...]:
    return (
        Case("batch 100", (), 3, "black"),
        Case("batch 1600, rate x 16", LINEAR, 3, "tab:blue"),
        Case("batch 1600, LARS", LARGE, 3, "tab:orange", lars),
    )


QUICK_LARS = "base_lr: 8 local_lr_auto: true rampup_interval: 300 rampup_lr: 0.5"
QUICK = Experiment(
    "CIFAR-10", narrow_quick,
    'base_lr: 0.005 lr_policy: "multistep" gamma: 0.1 stepvalue: 4800 momentum: 0.9 '
    "weight_decay: 0.001 test_iter: 100",
    100, 50_000, 6000, 1200,
    (
        *cifar10_cases(QUICK_LARS),
        Case("batch 1600, rate x 16, 3 x the epochs", LINEAR, 1, "tab:cyan", "", 3),
        Case("batch 1600, LARS, 3 x the epochs", LARGE, 1, "tab:red", QUICK_LARS, 3),
    ),
    20,
)  # fmt: skip


def full(epochs: int) -> Experiment:
    """cifar10_full, its schedule of 140 epochs shortened in proportion: 120, 10 and 10 of 140."""
    iterations = epochs * 500
    steps = [f"stepvalue: {iterations * part // 14}" for part in (12, 13)]
    rise = f"rampup_interval: {iterations // 20} rampup_lr: 0.5"
    return Experiment(
        f"cifar10_full, {epochs} epochs", lambda: shipped("cifar10_full"),
        f'base_lr: 0.001 lr_policy: "multistep" gamma: 0.1 {" ".join(steps)} '
        "momentum: 0.9 weight_decay: 0.004 test_iter: 100",
        100, 50_000, iterations, iterations // 5,
        cifar10_cases(f"base_lr: 8 local_lr_auto: true {rise}"), 0,
    )  # fmt: skip


EXPERIMENTS = {
    "digits": DIGITS,
    "cifar10": QUICK,
    "cifar10_full": full(4),
    "cifar10_full_140": full(140),
}

Accuracies = list[float]  # before training, and after every interval
Results = dict[str, list[Accuracies]]


def train(experiment: Experiment, case: Case, seed: int, folder: Path) -> Accuracies:
    """One run of fire_train; a run that ends early with NaN is right by chance from there on."""
    (folder / "net.prototxt").write_text(experiment.net())
    (folder / "solver.prototxt").write_text(solver_text(experiment, case, seed))
    done = command(
        folder, "fire_train", "--solver", "solver.prototxt", "--log", "--threads", "1", "--shuffle",
        *case.flags,
    )  # fmt: skip
    found = [float(a) for a in re.findall(r"Test net output #0: accuracy = (\S+)", done.stderr)]
    if done.returncode and "not finite" not in done.stderr:
        sys.exit(f"{case.name}, seed {seed}: fire_train failed:\n{done.stderr[-2000:]}")
    return found + [CHANCE] * (experiment.tests - len(found))


def solver_text(experiment: Experiment, case: Case, seed: int) -> str:
    """The solver of the small batch, with what the case changes."""
    schedule = (
        f"{_without(experiment.solver, case.settings)} {case.settings}\n"
        f"test_interval: {experiment.interval} max_iter: {experiment.iterations}"
    )
    return (
        f'net: "net.prototxt" {_stretched(schedule, case.length)} display: 0\n'
        f"random_seed: {seed} snapshot_after_train: false solver_mode: CPU\n"
    )


def _stretched(schedule: str, times: int) -> str:
    """The schedule with all its counts of iterations so many times as large."""
    counts = r"\b(stepvalue|rampup_interval|test_interval|max_iter): (\d+)"
    return re.sub(counts, lambda found: f"{found[1]}: {times * int(found[2])}", schedule)


def _without(settings: str, others: str) -> str:
    """The settings less those that others give again."""
    names = re.findall(r"(\w+):", others)
    return re.sub(rf"\b({'|'.join(names)}): \S+", "", settings) if names else settings


def command(folder: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One of the package's commands, as it is in this checkout."""
    return subprocess.run(
        [sys.executable, "-m", f"pycaffe_fire.cli.{name}", *arguments],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip


def run_all(experiment: Experiment, data: Path | None, path: Path) -> None:
    """The runs that path does not have yet, each written there as it ends; seeds outermost: what
    is there after some hours can be compared."""
    results: Results = json.loads(path.read_text()) if path.exists() else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if data is None:
            command(folder, "fire_data", "digits", "data").check_returncode()
        else:
            (folder / "data").symlink_to(data.resolve())
        for seed in range(1, max(case.seeds for case in experiment.cases) + 1):
            for case in experiment.cases:
                runs = results.setdefault(case.name, [])
                if len(runs) < seed <= case.seeds:
                    runs.append(train(experiment, case, seed, folder))
                    print(f"{case.name}, seed {seed}: {runs[-1][-1]:.4f}", flush=True)
                    with replacing(path, FireError) as file:
                        file.write_text(json.dumps(results) + "\n")


def table(results: Results) -> list[str]:
    """Final accuracies: every seed, their mean and range, and the distance to the first mean."""
    lines = [f"{'':<40}{'mean':>8}{'range':>8}{'to first':>10}   seeds"]
    base = statistics.fmean(run[-1] for run in next(iter(results.values())))
    for name, runs in results.items():
        last = [100 * run[-1] for run in runs]
        mean, spread = statistics.fmean(last), max(last) - min(last)
        each = ", ".join(f"{a:.2f}" for a in last)
        lines.append(f"{name:<40}{mean:>7.2f}%{spread:>8.2f}{mean - 100 * base:>+10.2f}   {each}")
    return lines


def draw(experiment: Experiment, results: Results, path: Path) -> None:
    """Accuracy against epoch: the mean over seeds, and their range as a band."""
    figure = new_figure()
    axes = figure.add_subplot()
    for case in experiment.cases:
        columns = list(zip(*results[case.name], strict=True))
        low, high = [100 * min(c) for c in columns], [100 * max(c) for c in columns]
        means = [100 * statistics.fmean(c) for c in columns]
        epochs = experiment.epochs(case)
        axes.plot(epochs, means, color=case.color, label=case.name)
        axes.fill_between(epochs, low, high, color=case.color, alpha=0.15, linewidth=0)
    axes.set_ylim(bottom=experiment.least)
    dress(axes, experiment.title, "epoch", "test accuracy, %")
    save(figure, str(path))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--data", type=Path, help="the folder of CIFAR-10's databases")
    parser.add_argument("--draw", action="store_true", help="run nothing")
    options = parser.parse_args(arguments)
    experiment = EXPERIMENTS[options.experiment]
    if experiment is not DIGITS and not options.draw and options.data is None:
        parser.error("CIFAR-10 is prepared by cifar10_data.py: give --data DIR")
    path = HERE / f"{options.experiment}.json"
    if not options.draw:
        run_all(experiment, None if experiment is DIGITS else options.data, path)
    results = json.loads(path.read_text())
    print("\n".join(table(results)))
    draw(experiment, results, path.with_suffix(".png"))
    return 0


if __name__ == "__main__":
    sys.exit(main())

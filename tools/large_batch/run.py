"""Batch 64 against batch 1024 on the embedded digits: what a scaled learning rate is good for.

python tools/large_batch/run.py            all runs, then results.json and accuracy.png beside this
python tools/large_batch/run.py --draw     only the plot and the table, from results.json

Every run is the command fire_train as a user would start it, over the same number of images.
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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pycaffe_fire.report.style import dress, new_figure, save

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NET = ROOT / "models" / "lenet" / "train_val.prototxt"
RESULTS, PLOT = HERE / "results.json", HERE / "accuracy.png"
IMAGES = 20_000  # of the training set
BETWEEN_TESTS = 20_480  # images: a whole number of iterations of every batch here
SMALL, LARGE = 64, 1024
WARM_UP = 0.3  # of all iterations

# The rate falls with the share of the run that is done, so its course is the same for any batch.
SOLVER = """
net: "{net}"
base_lr: 0.01 lr_policy: "poly" power: 1 momentum: 0.9 weight_decay: 0.0005 clip_gradients: 1
test_iter: 40 test_interval: {interval} max_iter: {iterations} display: 0
random_seed: {seed} snapshot_after_train: false solver_mode: CPU
"""


@dataclass(frozen=True)
class Case:
    """A way to train: its name, the batch, fire_train's flags for the rate, how many runs."""

    name: str
    batch: int
    flags: tuple[str, ...]
    seeds: int
    color: str


def cases(epochs: int) -> list[Case]:
    warmup = ("--warmup", str(round(WARM_UP * epochs * BETWEEN_TESTS / LARGE)))
    return [
        Case("batch 64", SMALL, (), 3, "black"),
        Case("batch 1024, rate x 16", LARGE, ("--scale-lr", "linear", *warmup), 3, "tab:blue"),
        Case("batch 1024, rate x 4", LARGE, ("--scale-lr", "sqrt", *warmup), 1, "tab:green"),
        Case("batch 1024, rate x 16, no warm-up", LARGE,
             ("--scale-lr", "linear", "--warmup", "0"), 1, "tab:orange"),
        Case("batch 1024, same rate", LARGE, (), 1, "tab:red"),
    ]  # fmt: skip


Accuracies = list[float]  # before training, and after every BETWEEN_TESTS images


def train(case: Case, seed: int, epochs: int, folder: Path) -> Accuracies:
    """One run of fire_train; a run that ends early with NaN is right by chance from there on."""
    interval = BETWEEN_TESTS // case.batch
    settings = SOLVER.format(net=NET, interval=interval, iterations=epochs * interval, seed=seed)
    (folder / "solver.prototxt").write_text(settings)
    done = command(
        folder, "fire_train", "--solver", "solver.prototxt", "--log", "--threads", "1", "--shuffle",
        "--batch", str(case.batch), *case.flags,
    )  # fmt: skip
    found = [float(a) for a in re.findall(r"Test net output #0: accuracy = (\S+)", done.stderr)]
    if done.returncode and "not finite" not in done.stderr:
        sys.exit(f"{case.name}, seed {seed}: fire_train failed:\n{done.stderr[-2000:]}")
    return found + [0.1] * (epochs + 1 - len(found))


def command(folder: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One of the package's commands, as it is in this checkout."""
    return subprocess.run(
        [sys.executable, "-m", f"pycaffe_fire.cli.{name}", *arguments],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip


def run_all(epochs: int) -> dict[str, list[Accuracies]]:
    results: dict[str, list[Accuracies]] = {}
    with tempfile.TemporaryDirectory() as folder:
        command(Path(folder), "fire_data", "digits", "data").check_returncode()
        for case in cases(epochs):
            results[case.name] = []
            for seed in range(1, case.seeds + 1):
                results[case.name].append(train(case, seed, epochs, Path(folder)))
                print(f"{case.name}, seed {seed}: {results[case.name][-1][-1]:.4f}", flush=True)
    return results


def table(results: dict[str, list[Accuracies]]) -> list[str]:
    """Final accuracies: every seed, their mean, and the distance to the small batch's mean."""
    lines = [f"{'':<36}{'mean':>8}{'to batch 64':>14}   seeds"]
    base = statistics.fmean(run[-1] for run in next(iter(results.values())))
    for name, runs in results.items():
        last = [run[-1] for run in runs]
        mean = statistics.fmean(last)
        each = ", ".join(f"{100 * a:.2f}" for a in last)
        lines.append(f"{name:<36}{100 * mean:>7.2f}%{100 * (mean - base):>+13.2f}%   {each}")
    return lines


def draw(results: dict[str, list[Accuracies]]) -> None:
    """Accuracy against epoch: the mean over seeds, and their range as a band."""
    figure = new_figure()
    axes = figure.add_subplot()
    tests = len(next(iter(results.values()))[0])
    epochs = [i * BETWEEN_TESTS / IMAGES for i in range(tests)]
    for case in cases(tests - 1):
        columns = list(zip(*results[case.name], strict=True))
        low, high = [100 * min(c) for c in columns], [100 * max(c) for c in columns]
        means = [100 * statistics.fmean(c) for c in columns]
        axes.plot(epochs, means, color=case.color, label=case.name)
        axes.fill_between(epochs, low, high, color=case.color, alpha=0.15, linewidth=0)
    axes.set_ylim(60, 100)
    dress(axes, "LeNet on digits", "epoch", "test accuracy, %")
    save(figure, str(PLOT))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--draw", action="store_true", help="run nothing")
    options = parser.parse_args(arguments)
    if not options.draw:
        RESULTS.write_text(json.dumps(run_all(options.epochs)) + "\n")
    results = json.loads(RESULTS.read_text())
    print("\n".join(table(results)))
    draw(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())

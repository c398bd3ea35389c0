"""Curves of one or several runs: which lines go into which panel, and drawing them as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .runs import Point, Run
from .style import COLOURS, dress, new_figure, save

STYLES = ("solid", "dashed", "dotted")  # of one run's lines, where colours tell runs apart
AXES = {"iteration": "iteration", "time": "hours"}


@dataclass
class Line:
    """One curve; `raw` lies faintly under it where it was smoothed. Tests have few points; with
    `steps` a value holds until the next."""

    label: str
    colour: str
    points: list[tuple[float, float]]
    raw: list[tuple[float, float]] = field(default_factory=list)
    is_test: bool = False
    style: str = "solid"
    steps: bool = False


@dataclass
class Panel:
    """Curves that share an axis."""

    title: str
    lines: list[Line]
    logarithmic: bool = False
    from_zero: bool = False


def _group(name: str) -> str:
    if name == "rate":
        return RATE
    if name == "images_per_second":
        return SPEED
    return LOSS if "loss" in name.rpartition("/")[2].lower() else SCORES


GROUPS = LOSS, SCORES, RATE, SPEED = "Loss", "Scores", "Learning rate", "Images per second"
SPEED_PARTS = 20  # a speed is the mean over such a part of the run


def panels(runs: Sequence[Run], by: str = "iteration", smooth: int = 1) -> list[Panel]:
    """Loss, scores, learning rate and speed, as far as the runs have them."""
    made = {title: Panel(title, []) for title in GROUPS}
    for number, run in enumerate(runs):
        for name, points in sorted(run.series.items(), key=lambda item: _is_test(item[0])):
            panel = made[_group(name)]
            colour = COLOURS[(number if len(runs) > 1 else len(panel.lines)) % len(COLOURS)]
            label = name if len(runs) == 1 else f"{run.name}: {name}"
            window = smooth if name.startswith("train") else 1
            if panel.title == SPEED:
                window = max(smooth, len(points) // SPEED_PARTS)
            line = _line(label, colour, points, by, window)
            line.is_test = _is_test(name)
            line.steps = panel.title == RATE and _holds(line)
            if len(runs) > 1:
                line.style = STYLES[sum(n.colour == colour for n in panel.lines) % len(STYLES)]
            panel.lines.append(line)
    rates = [y for line in made[RATE].lines for _, y in line.points if y > 0]
    made[SPEED].from_zero = True
    made[RATE].logarithmic = bool(rates) and max(rates) > 20 * min(rates)
    return [panel for panel in made.values() if panel.lines]


def _holds(line: Line) -> bool:
    """Does a rate stay what it is for a while, and then jump?"""
    return 2 * len({y for _, y in line.points}) <= len(line.points)


def _is_test(name: str) -> bool:
    return name.startswith("test")


def _line(label: str, colour: str, points: Sequence[Point], by: str, window: int) -> Line:
    """A curve, each point the mean of about `window` points around it."""
    x = [p.iteration if by == "iteration" else p.seconds / 3600 for p in points]
    y = [p.value for p in points]
    raw = list(zip(x, y, strict=True))
    if window < 2:
        return Line(label, colour, raw)
    around = (y[max(0, i - window // 2) : i + (window + 1) // 2] for i in range(len(y)))
    means = [sum(part) / len(part) for part in around]
    return Line(label, colour, list(zip(x, means, strict=True)), raw)


def draw(path: str, drawn: Sequence[Panel], by: str, title: str = "") -> None:
    """All panels side by side as a plot of the kind that the file's name says."""
    columns = min(2, len(drawn))
    rows = -(-len(drawn) // columns)
    figure = new_figure(rows, columns, title)
    for number, panel in enumerate(drawn):
        axes = figure.add_subplot(rows, columns, number + 1)
        for line in panel.lines:
            if line.raw:
                axes.plot(*zip(*line.raw, strict=True), color=line.colour, alpha=0.25, lw=1)
            axes.plot(
                *zip(*line.points, strict=True), label=line.label, color=line.colour, lw=1.6,
                ls=line.style, marker="o" if line.is_test else None, ms=3.5,
                drawstyle="steps-post" if line.steps else "default",
            )  # fmt: skip
        if panel.logarithmic:
            axes.set_yscale("log")
        if panel.from_zero:
            axes.set_ylim(bottom=0)
        dress(axes, panel.title, AXES[by])
    save(figure, path)

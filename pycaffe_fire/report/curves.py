"""Curves of one or several runs: which lines go into which panel, and drawing them as a plot."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..errors import FireError
from ..schema.files import replacing
from .runs import Point, Run

COLOURS = (
    "#2f6fb3", "#d1603d", "#3a9a62", "#8a5fb5", "#c29a2b", "#3aa6a6", "#b5476f", "#6f7d8c",
)  # fmt: skip
STYLES = ("solid", "dashed", "dotted")  # of one run's lines, where colours tell runs apart
AXES = {"iteration": "iteration", "time": "hours"}


@dataclass
class Line:
    """One curve; `raw` lies faintly behind it where it was smoothed. Tests have few points."""

    label: str
    colour: str
    points: list[tuple[float, float]]
    raw: list[tuple[float, float]] = field(default_factory=list)
    is_test: bool = False
    style: str = "solid"


@dataclass
class Panel:
    """Curves that share an axis."""

    title: str
    lines: list[Line]
    logarithmic: bool = False


def _group(name: str) -> str:
    if name == "rate":
        return "learning rate"
    if name == "images_per_second":
        return "images per second"
    return "loss" if "loss" in name.rpartition("/")[2].lower() else "scores"


GROUPS = ("loss", "scores", "learning rate", "images per second")


def panels(runs: Sequence[Run], by: str = "iteration", smooth: int = 1) -> list[Panel]:
    """Loss, scores, learning rate and speed, as far as the runs have them."""
    made = {title: Panel(title, []) for title in GROUPS}
    for number, run in enumerate(runs):
        for name, points in sorted(run.series.items(), key=lambda item: _is_test(item[0])):
            panel = made[_group(name)]
            colour = COLOURS[(number if len(runs) > 1 else len(panel.lines)) % len(COLOURS)]
            label = name if len(runs) == 1 else f"{run.name}: {name}"
            window = smooth if name.startswith("train") else 1
            line = _line(label, colour, points, by, window)
            line.is_test = _is_test(name)
            if len(runs) > 1:
                line.style = STYLES[sum(n.colour == colour for n in panel.lines) % len(STYLES)]
            panel.lines.append(line)
    rates = [y for line in made["learning rate"].lines for _, y in line.points if y > 0]
    made["learning rate"].logarithmic = bool(rates) and max(rates) > 20 * min(rates)
    return [panel for panel in made.values() if panel.lines]


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


def check_plot_name(path: str) -> None:
    """Raise what would go wrong with `draw`, before anything is read for it."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise FireError(
            "plots need matplotlib: pip install pycaffe_fire[plot]; --html does not need it"
        ) from None
    known = sorted(Figure().canvas.get_supported_filetypes())
    if _ending(path) not in known:
        raise FireError(
            f"{path}: the plot's name must end in .png or another of: {', '.join(known)}"
        )


def _ending(path: str) -> str:
    return os.path.splitext(path)[1][1:].lower()


def draw(path: str, drawn: Sequence[Panel], by: str) -> None:
    """All panels side by side as a plot of the kind that the file's name says."""
    from matplotlib.figure import Figure

    columns = min(2, len(drawn))
    rows = -(-len(drawn) // columns)
    figure = Figure(figsize=(6.4 * columns, 3.9 * rows), layout="constrained")
    for number, panel in enumerate(drawn):
        axes = figure.add_subplot(rows, columns, number + 1)
        for line in panel.lines:
            if line.raw:
                axes.plot(*zip(*line.raw, strict=True), color=line.colour, alpha=0.25, lw=1)
            axes.plot(
                *zip(*line.points, strict=True), label=line.label, color=line.colour, lw=1.6,
                ls=line.style, marker="o" if line.is_test else None, ms=3.5,
            )  # fmt: skip
        if panel.logarithmic:
            axes.set_yscale("log")
        axes.set_title(panel.title, fontsize=11, loc="left")
        axes.set_xlabel(AXES[by])
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize=8, frameon=False)
    with replacing(path, FireError) as temporary:
        figure.savefig(temporary, format=_ending(path), dpi=150)

"""The one look of all plots: colours, axes, and files of any kind that matplotlib writes."""

from __future__ import annotations

import os
from typing import Any

from ..errors import FireError
from ..installation import install_hint
from ..schema.files import replacing

COLOURS = (
    "#2f6fb3", "#d1603d", "#3a9a62", "#8a5fb5", "#c29a2b", "#3aa6a6", "#b5476f", "#6f7d8c",
)  # fmt: skip
PALE = "#9aa5b1"  # of what curves are compared with
WIDTH, HEIGHT = 6.4, 3.9  # inches of one plot


def check_plot_name(path: str) -> None:
    """Raise what would go wrong with `save`, before long work is done for it."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise FireError(f"plots need matplotlib: {install_hint('plot')}") from None
    known = sorted(Figure().canvas.get_supported_filetypes())
    if _ending(path) not in known:
        raise FireError(
            f"{path}: the plot's name must end in .png or another of: {', '.join(known)}"
        )


def _ending(path: str) -> str:
    return os.path.splitext(path)[1][1:].lower()


def new_figure(rows: int = 1, columns: int = 1, title: str = "") -> Any:
    """A matplotlib figure for so many plots."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH * columns, HEIGHT * rows), layout="constrained")
    if title:
        figure.suptitle(title, fontsize=12, fontweight="bold")
    return figure


def dress(axes: Any, title: str, across: str, upward: str = "") -> None:
    """Title, names of the axes, grid and legend of one plot, after its curves were drawn."""
    axes.set_title(title, fontsize=11, loc="left")
    axes.set_xlabel(across)
    axes.set_ylabel(upward)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False)


def save(figure: Any, path: str) -> None:
    """Write the figure as the kind of file that its name says, completely or not at all."""
    with replacing(path, FireError) as temporary:
        figure.savefig(temporary, format=_ending(path), dpi=150)

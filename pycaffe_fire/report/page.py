"""One self-contained HTML page about runs: what the FireCaffe paper asks people to publish.

Curves, accuracy and how it was measured, hyperparameters, hardware, the net layer by layer with
its time and memory; several runs side by side. Nothing in it comes from a network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ..backend.sizes import mebibytes
from ..errors import FireError
from ..schema.files import replacing
from .baseline import Comparison, comparison_table
from .curves import panels
from .record import record_tables
from .run_facts import results, subtitle, title_of
from .runs import Run
from .side_by_side import side_by_side
from .summary import TRAINING, gigaflop, shapes_text
from .svg import chart
from .timeline import drawing

NOTHING = 5e-6  # seconds: what a look at the clock takes


def asset(name: str) -> str:
    """A file beside this one that pages carry along."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def write_page(
    path: str, runs: Sequence[Run], by: str, smooth: int, comparison: Comparison | None = None
) -> None:
    """One page about all runs."""
    with replacing(path, FireError) as temporary:
        temporary.write_text(page(runs, by, smooth, comparison), encoding="utf-8")


def page(
    runs: Sequence[Run], by: str = "iteration", smooth: int = 1,
    comparison: Comparison | None = None,
) -> str:  # fmt: skip
    title = title_of(runs)
    body = [f"<h1>{escape(title)}</h1>"]
    if len(runs) == 1:
        body += [f'<p class="sub">{escape(subtitle(runs[0]))}</p>', _tiles(runs[0])]
    else:
        body.append(side_by_side(runs))
    if comparison is not None:
        body.append(_against(comparison))
    body += [
        '<h2>Curves</h2><p class="sub">Drag to zoom in, double-click to see everything.</p>',
        '<div class="grid2">',
        *(chart(panel, by) for panel in panels(runs, by, smooth)),
        "</div>",
    ]
    for run in runs:
        parts = "".join(_about(run))
        if len(runs) > 1:
            parts = f'<details class="run"><summary>{escape(run.name)}</summary>{parts}</details>'
        body.append(parts)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{asset('page.css')}</style></head>"
        f"<body><main>{''.join(body)}</main><script>{asset('zoom.js')}</script></body></html>\n"
    )


def _about(run: Run) -> Iterable[str]:
    """Everything but the curves."""
    if run.troubles:
        rows = [(f"iteration {t['iteration']}", f"{t['what']}; {t['done']}") for t in run.troubles]
        yield _facts("Not finite", rows, "warn")
    if run.started:
        tables = (_facts(*table) for table in record_tables(run))
        yield from ('<div class="columns">', *tables, "</div>", _timeline(run), _net(run))
    else:
        yield '<p class="sub">Only the JSON log of a run says more than its curves.</p>'


def _tiles(run: Run) -> str:
    """The numbers for a reader who has five seconds."""
    tiles = [(value, name) for name, value in results(run)]
    cells = (
        f'<div class="tile"><b>{escape(a)}</b><span>{escape(b)}</span></div>' for a, b in tiles
    )
    return f'<div class="tiles">{"".join(cells)}</div>'


def _facts(title: str, rows: Iterable[tuple[str, str]], kind: str = "") -> str:
    lines = "".join(f"<tr><th>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in rows)
    return (
        f'<section><h2>{escape(title)}</h2><div class="card facts {kind}">'
        f"<table>{lines}</table></div></section>"
    )


def _against(comparison: Comparison) -> str:
    """All runs beside their baseline."""
    head, *rows = comparison_table(comparison)
    lines = "".join(f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in row)}</tr>" for row in rows)
    return (
        f'<section><h2>Against the baseline</h2><p class="sub">Speedup is the baseline\'s time to '
        f"its final {escape(comparison.output)} over the time in which a run first had it in a "
        f'test.</p><div class="card"><table><tr>{"".join(f"<th>{escape(c)}</th>" for c in head)}'
        f"</tr>{lines}</table></div></section>"
    )


def _timeline(run: Run) -> str:
    """One iteration over all ranks."""
    if not run.timeline:
        return ""
    return (
        f"<section><h2>An iteration, rank by rank</h2>"
        f'<p class="sub">Iteration {run.timeline["iteration"]}, from the moment when all ranks '
        f"began it; below each rank's compute, its exchange of gradients.</p>"
        f'<div class="card">{drawing(run.timeline["ranks"])}</div></section>'
    )


def _net(run: Run) -> str:
    """The layers with a bar for the share of time that each takes."""
    train = run.started.get("train")
    if not train:
        return ""
    times = {entry["name"]: entry for entry in run.profile}
    longest = max((t["forward"] + t["backward"] for t in run.profile), default=0.0)
    layers = train["layers"]
    rows = "".join(_layer(layer, times.get(layer["name"]), longest) for layer in layers)
    work = sum(layer["multiply_adds"] for layer in layers)
    total = (
        f'<tr><th colspan="3">all layers</th><td class="n">{_sum(layers, "parameters"):,}</td>'
        f'<td class="n">{mebibytes(_sum(layers, "memory"))}</td>'
        f'<td class="n">{gigaflop(work):,.3f}</td><td class="n">{_total_time(run)}</td></tr>'
    )
    head = (
        '<tr><th>layer</th><th>type</th><th>tops</th><th class="n">parameters</th>'
        '<th class="n">memory</th><th class="n">GFLOP</th><th class="n key">ms '
        '<i style="background:var(--bar)"></i>forward'
        '<i style="background:var(--bar2)"></i>backward</th></tr>'
    )
    return (
        f'<section><h2>The net</h2><p class="sub">One pass of one leaf; memory is that of the '
        f"values (gradients share theirs), GFLOP those of a forward pass: training takes "
        f"{TRAINING} times as many.</p>"
        f'<div class="card"><table>{head}{rows}{total}</table></div>'
        f"<details><summary>prototxt</summary><pre>{escape(train['prototxt'])}</pre></details>"
        f"</section>"
    )


def _sum(layers: Sequence[Mapping[str, Any]], field: str) -> int:
    return sum(layer[field] for layer in layers)


def _total_time(run: Run) -> str:
    return f"{1e3 * sum(t['forward'] + t['backward'] for t in run.profile):,.2f}"


def _layer(layer: Mapping[str, Any], time: Mapping[str, Any] | None, longest: float) -> str:
    seconds = time["forward"] + time["backward"] if time else 0.0
    cell = ""
    if time and time["inside"] and seconds < NOTHING:
        cell = f"<small>in {escape(time['inside'])}</small>"
    elif time and seconds:
        parts = (100 * time[which] / longest for which in ("forward", "backward"))
        bars = "".join(f'<i style="width:{part:.1f}%"></i>' for part in parts)
        cell = f'<div><div class="bars">{bars}</div><b>{1e3 * seconds:,.2f}</b></div>'
    count = f"{layer['parameters']:,}" if layer["parameters"] else ""
    size = mebibytes(layer["memory"]) if layer["memory"] else ""
    work = f"{gigaflop(layer['multiply_adds']):,.3f}" if layer["multiply_adds"] else ""
    return (
        f"<tr><td>{escape(layer['name'])}</td><td>{escape(layer['type'])}</td>"
        f'<td>{escape(shapes_text(layer["tops"]))}</td><td class="n">{count}</td>'
        f'<td class="n">{size}</td><td class="n">{work}</td>'
        f'<td class="n time">{cell}</td></tr>'
    )

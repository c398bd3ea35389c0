"""One self-contained HTML page about a run: what the FireCaffe paper asks people to publish.

Curves, accuracy and how it was measured, hyperparameters, hardware, the net layer by layer with
its time and memory. Nothing in it comes from a network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from ..backend.sizes import mebibytes
from ..errors import FireError
from ..schema.files import replacing
from .curves import panels
from .progress import clock
from .record import epochs_of, record_tables
from .runs import Run
from .summary import TRAINING, gigaflop, shapes_text
from .svg import chart

NOTHING = 5e-6  # seconds: what a look at the clock takes

STYLE = """
:root { --ink: #1d2733; --soft: #5d6b7a; --line: #e3e8ee; --card: #fff; --back: #f5f7f9;
  --accent: #2f6fb3; --bar: #cfe0f2; --bar2: #f3d9cd; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ef; --soft: #93a1b0; --line: #2c3641;
  --card: #1a222b; --back: #12181e; --accent: #6ea8e0; --bar: #27435f; --bar2: #5a3a2c; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1360px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: 28px; margin: 0; letter-spacing: -.01em; }
h2 { font-size: 17px; margin: 36px 0 12px; }
p.sub { margin: 4px 0 24px; color: var(--soft); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; }
.tile, figure, .card { background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; }
.tile { padding: 12px 16px; }
.tile b { display: block; font-size: 21px; font-weight: 600; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: 13px; }
.columns { columns: 2 480px; column-gap: 16px; }
.columns section { break-inside: avoid; }
.columns h2 { margin: 0; padding: 34px 0 12px; }
.grid2 { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(480px, 100%), 1fr));
  gap: 16px; }
figure { margin: 0; padding: 14px 16px 12px; }
figcaption { font-weight: 600; margin-bottom: 6px; }
figcaption::first-letter { text-transform: uppercase; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--soft); font-size: 12px; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg polyline { fill: none; stroke-width: 2; stroke-linejoin: round; }
svg polyline.raw { stroke-width: 1; opacity: .3; }
.legend { color: var(--soft); font-size: 13px; display: flex; flex-wrap: wrap; gap: 4px 16px; }
.legend i { display: inline-block; width: 18px; margin: 0 6px 4px 0; }
.card { padding: 6px 16px; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; color: var(--soft); font-weight: 500; }
th, td { padding: 5px 16px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child > * { border-bottom: 0; }
.card.facts th { width: 36%; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.time > div { display: flex; align-items: center; gap: 12px; }
.bars { display: flex; width: 150px; height: 12px; border-radius: 3px; overflow: hidden; }
td.time b { flex: 1; font-weight: 400; }
.bars i { background: var(--bar); } .bars i + i { background: var(--bar2); }
.warn { border-left: 3px solid #d1603d; }
.key i { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin: 0 5px; }
code, pre { font: 13px/1.45 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
details pre { max-height: 480px; overflow: auto; }
small { color: var(--soft); }
summary { cursor: pointer; padding: 6px 0; color: var(--accent); }
"""


def write_page(path: str, runs: Sequence[Run], by: str, smooth: int) -> None:
    """The page of the first run, with the others' curves beside its own."""
    with replacing(path, FireError) as temporary:
        temporary.write_text(page(runs, by, smooth), encoding="utf-8")


def page(runs: Sequence[Run], by: str = "iteration", smooth: int = 1) -> str:
    run = runs[0]
    title = str(run.started.get("name") or run.name)
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="sub">{escape(_subtitle(run))}</p>',
        _tiles(run),
        '<h2>Curves</h2><div class="grid2">',
        *(chart(panel, by) for panel in panels(runs, by, smooth)),
        "</div>",
    ]
    if run.troubles:
        rows = [(f"iteration {t['iteration']}", f"{t['what']}; {t['done']}") for t in run.troubles]
        body.append(_facts("Not finite", rows, "warn"))
    if run.started:
        tables = (_facts(*table) for table in record_tables(run))
        body += ['<div class="columns">', *tables, "</div>", _net(run)]
    else:
        body.append('<p class="sub">Only the JSON log of a run tells more than its curves.</p>')
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


def _subtitle(run: Run) -> str:
    started = run.started
    if not started:
        return run.name
    finished = run.finished
    state = "unfinished" if finished is None else "stopped early" if finished["early"] else "done"
    return f"{started['backend']} · {started['hardware']['host']} · {state}"


def _tiles(run: Run) -> str:
    """The numbers for a reader who has five seconds."""
    tiles: list[tuple[str, str]] = []
    for name, points in run.series.items():
        if name.startswith("test"):
            tiles.append((f"{points[-1].value:.4g}", f"{name}, iteration {points[-1].iteration}"))
    if not tiles and "train/loss" in run.series:
        tiles.append((f"{run.series['train/loss'][-1].value:.4g}", "train/loss"))
    points = max(run.series.values(), key=lambda p: p[-1].seconds)
    seconds = run.finished["seconds"] if run.finished else points[-1].seconds
    tiles.append((clock(seconds), "training time"))
    speeds = [p.value for p in run.series.get("images_per_second", [])]
    if speeds:
        median = sorted(speeds)[len(speeds) // 2]
        shown = f"{median:,.0f}" if median >= 100 else f"{median:.3g}"
        tiles.append((shown, "images per second"))
    if run.started:
        tiles.append((f"{run.started['batch']:,}", "batch, all ranks"))
        epochs = epochs_of(run)
        if epochs:
            tiles.append((f"{epochs:.3g}", "epochs"))
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

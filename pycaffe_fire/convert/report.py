"""A page about a conversion: the check's table, what was folded or dropped, the drawn net."""

from __future__ import annotations

from html import escape

from ..errors import ConvertError
from ..report.page import asset
from ..schema.files import replacing
from .caffe_to_onnx import Conversion
from .checker import TOLERANCE, Result
from .model import PathLike


def write_page(path: PathLike, title: str, made: Conversion, drawing: str) -> None:
    """A self-contained HTML page; `drawing` is the net as SVG."""
    with replacing(path, ConvertError) as temporary:
        temporary.write_text(_page(title, made, drawing), "utf-8")


def _page(title: str, made: Conversion, drawing: str) -> str:
    notes = "".join(f"<li>{escape(note)}</li>" for note in made.notes) or "<li>nothing</li>"
    svg = drawing[drawing.index("<svg") :]
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>
<style>{asset("page.css")}</style></head><body><main>
<h1>{escape(title)}</h1><p class="sub">converted by pycaffe_fire</p>
{_check(made.check)}
<h2>Folded, dropped or changed</h2><div class="card"><ul>{notes}</ul></div>
<h2>The net</h2><div class="card">{svg}</div>
</main></body></html>
"""


def _check(result: Result | None) -> str:
    if result is None:
        return "<h2>Check</h2><p>It was not asked for.</p>"
    rows = "".join(
        f"<tr><td>{escape(row.layer)}</td><td>{escape(row.type)}</td>"
        f"<td>{row.difference:.1e}</td><td>{escape(row.where)}</td></tr>"
        for row in result.rows
        if row.compared
    )
    where = f"{', '.join(result.runtimes)}, batches of {' and '.join(map(str, result.batches))}"
    return f"""<div class="tiles"><div class="tile"><b>{result.worst:.1e}</b>
<span>largest relative difference of {TOLERANCE:g} allowed</span></div>
<div class="tile"><b>{sum(row.compared for row in result.rows)}</b><span>layers compared</span>
</div></div><p class="sub">{escape(where)}</p>
<h2>Largest difference of each layer</h2><div class="card"><table>
<tr><th>layer</th><th>type</th><th>difference</th><th>where</th></tr>{rows}</table></div>"""

"""What every rank did when in one iteration: as a Chrome trace, in short for the log, and drawn."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from ..errors import FireError
from ..schema.files import replacing
from ..solver.events import Event, Finished, Timeline
from ..solver.timeline import KINDS, RECORDED, Span

log = logging.getLogger("pycaffe_fire")

GAP = 0.01  # of the iteration: spans of one kind that are nearer than this become one
MOST_RANKS = 64  # that are drawn
COLOURS = {
    "data": "#c29a2b", "forward": "#2f6fb3", "backward": "#8fb6dd", "exchange": "#3a9a62",
    "waiting": "#d1603d", "update": "#8a5fb5",
}  # fmt: skip
LEFT, WIDTH, ROW = 70, 900, 13  # of the drawing, in pixels

Outline = list[dict[str, Any]]  # one rank's spans, as the JSON log has them


class ChromeTrace:
    """An observer that writes the recorded iteration for chrome://tracing, Perfetto and others."""

    def __init__(self, path: str) -> None:
        self._path, self._written = path, False

    def __call__(self, event: Event) -> None:
        if isinstance(event, Timeline):
            with replacing(self._path, FireError) as temporary:
                temporary.write_text(json.dumps(chrome_trace(event)), encoding="utf-8")
            self._written = True
        elif isinstance(event, Finished) and not self._written:
            log.warning(
                "%s was not written: iteration %d of a run is recorded, and this one was shorter",
                self._path, RECORDED,
            )  # fmt: skip

    def close(self) -> None:
        """The file was closed when it was written."""


def chrome_trace(event: Timeline) -> dict[str, Any]:
    """A process for each rank, a thread for each lane; times in microseconds."""
    events: list[dict[str, Any]] = []
    for rank, spans in enumerate(event.ranks):
        lanes = list(dict.fromkeys(span.lane for span in sorted(spans, key=lambda s: s.lane)))
        events.append(_named("process_name", f"rank {rank} on {event.hosts[rank]}", rank, 0))
        events += [_named("thread_name", lane, rank, i) for i, lane in enumerate(lanes)]
        events += [
            {
                "ph": "X", "name": span.name or span.kind, "cat": span.kind, "pid": rank,
                "tid": lanes.index(span.lane), "ts": 1e6 * span.start,
                "dur": 1e6 * (span.stop - span.start),
            }
            for span in spans
        ]  # fmt: skip
    return {
        "traceEvents": events, "displayTimeUnit": "ms", "otherData": {"iteration": event.iteration}
    }  # fmt: skip


def _named(what: str, name: str, rank: int, thread: int) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": rank, "tid": thread, "args": {"name": name}}


def outline(spans: Sequence[Span]) -> Outline:
    """A rank's spans without layers and buckets: neighbours of one kind on one lane are one."""
    nearest = GAP * max((span.stop for span in spans), default=0.0)
    merged: Outline = []
    last: dict[str, dict[str, Any]] = {}
    for span in sorted(spans, key=lambda span: span.start):
        before = last.get(span.lane)
        if before and before["kind"] == span.kind and span.start - before["stop"] <= nearest:
            before["stop"] = max(before["stop"], span.stop)
            continue
        last[span.lane] = {
            "lane": span.lane, "kind": span.kind, "start": span.start, "stop": span.stop
        }  # fmt: skip
        merged.append(last[span.lane])
    return merged


def drawing(ranks: Sequence[Outline]) -> str:
    """The timeline as SVG: a row for each lane of each rank, time to the right."""
    shown = ranks[:MOST_RANKS]
    end = max((span["stop"] for spans in shown for span in spans), default=0.0) or 1.0
    rows: list[str] = []
    y = 0
    for rank, spans in enumerate(shown):
        lanes = sorted({span["lane"] for span in spans})
        rows.append(f'<text x="0" y="{y + ROW - 3}">rank {rank}</text>')
        rows += [_bar(span, y + ROW * lanes.index(span["lane"]), end) for span in spans]
        y += ROW * len(lanes) + 4
    rows += [
        f'<text x="{LEFT + WIDTH * i / 4:.0f}" y="{y + ROW}">{1e3 * end * i / 4:.3g} ms</text>'
        for i in range(4)
    ]
    key = "".join(f'<span><i style="background:{COLOURS[k]}"></i>{k}</span>' for k in used(shown))
    return (
        f'<div class="keys">{key}</div><svg class="timeline" role="img" '
        f'aria-label="what every rank did in one iteration" '
        f'viewBox="0 0 {LEFT + WIDTH} {y + ROW + 4}">{"".join(rows)}</svg>'
    )


def used(ranks: Iterable[Outline]) -> list[str]:
    """The kinds that occur, in their usual order."""
    found = {span["kind"] for spans in ranks for span in spans}
    return [kind for kind in KINDS if kind in found]


def _bar(span: dict[str, Any], y: int, end: float) -> str:
    start, stop = (WIDTH * span[name] / end for name in ("start", "stop"))
    return (
        f'<rect x="{LEFT + start:.1f}" y="{y}" width="{max(0.5, stop - start):.1f}" '
        f'height="{ROW - 2}" fill="{COLOURS.get(span["kind"], "gray")}"><title>'
        f"{escape(span['kind'])}: {1e3 * (span['stop'] - span['start']):.3g} ms</title></rect>"
    )

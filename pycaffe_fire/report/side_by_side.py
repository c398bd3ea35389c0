"""Several runs in one table: what they reached, how they were run, and where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .record import iterations_of, record_tables
from .run_facts import Facts, results, state
from .runs import Run
from .style import COLOURS


def side_by_side(runs: Sequence[Run]) -> str:
    """A column for each run; rows in which all agree are pale."""
    facts = [dict(_facts(run)) for run in runs]
    names = list(dict.fromkeys(name for of_run in facts for name in of_run))
    head = "".join(
        f'<th><i style="background:{COLOURS[i % len(COLOURS)]}"></i>{escape(run.name)}</th>'
        for i, run in enumerate(runs)
    )
    rows = []
    for name in names:
        values = [of_run.get(name, "") for of_run in facts]
        same = ' class="same"' if len(set(values)) == 1 else ""
        cells = "".join(f"<td>{escape(value)}</td>" for value in values)
        rows.append(f"<tr{same}><th>{escape(name)}</th>{cells}</tr>")
    return (
        '<div class="card runs"><table><thead><tr><th></th>'
        f"{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _facts(run: Run) -> Facts:
    """What can be compared; results under the names of their series."""
    found = [(name.partition(",")[0], value) for name, value in results(run)]
    found.append(("iterations", f"{iterations_of(run):,}"))
    if not run.started:
        return found
    start = [("net", run.title), ("state", state(run)), ("host", run.started["hardware"]["host"])]
    tables = dict(record_tables(run))
    return [*start, *found, *tables["Hyperparameters"], *tables["Hardware and software"]]

"""The facts that the FireCaffe paper asks people to publish of a run, as tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..backend.sizes import mebibytes
from ..parallel.interconnect import speed_text
from .runs import Run

FILLER = re.compile(r"weight_filler \{([^}]*)\}")

Table = tuple[str, list[tuple[str, str]]]  # a title, and rows of a name and a text


def iterations_of(run: Run) -> int:
    if run.finished:
        return int(run.finished["iteration"])
    return max(points[-1].iteration for points in run.series.values())


def epochs_of(run: Run) -> float | None:
    """How often a run has seen its training data, if it says how large that is."""
    data = [d for d in (run.started.get("train") or {}).get("data", []) if d["records"]]
    if not data:
        return None
    return float(iterations_of(run) * run.started["batch"] / data[0]["records"])


def record_tables(run: Run) -> Iterator[Table]:
    """Title and rows of every table; the run must come from a JSON log."""
    started, solver = run.started, run.started["solver"]
    yield "Accuracy protocol", _protocol(run)
    machine = started["hardware"]
    rows = [
        ("computed by", started["backend"]),
        ("processor", f"{machine['processor']}, {machine['cores']} cores used"),
        ("memory", mebibytes(machine["memory_bytes"])),
        ("hosts", _hosts(started)),
        ("ranks", f"{started['ranks']} ({started['communicator']})"),
        ("interconnect", _interconnect(started)),
        ("leaves of the batch", str(started["leaves"])),
        ("system", machine["system"]),
        ("versions", ", ".join(f"{name} {v}" for name, v in started["versions"].items())),
    ]
    yield "Hardware and software", rows
    skipped = ("net", "train_net", "test_net", "snapshot_prefix", "train_state", "test_state")
    shown = [("type", solver.get("type", "SGD"))]
    shown += [
        (name, _value(value)) for name, value in solver.items() if name not in (*skipped, "type")
    ]
    shown.append(("initialisation", "; ".join(_initialisation(run)) or "unknown"))
    if started.get("notes"):
        shown.append(("changed by flags", "; ".join(started["notes"])))
    yield "Hyperparameters", [*shown, ("seed used", str(started["seed"]))]


def _protocol(run: Run) -> list[tuple[str, str]]:
    """What was trained on and tested on, and how."""
    started, rows = run.started, []
    for data in (started["train"] or {}).get("data", []):
        rows.append(("training data", _data(data)))
        rows.append(("training crops", _crops(data["transform"], training=True)))
    epochs = epochs_of(run)
    length = f"{iterations_of(run):,} iterations of {started['batch']:,} samples"
    rows.append(("trained for", f"{length}, {epochs:.3g} epochs" if epochs else length))
    solver = started["solver"]
    for number, test in enumerate(started["tests"]):
        which = f" #{number}" if number else ""
        for data in test["data"]:
            rows.append((f"test data{which}", _data(data)))
            given = solver.get("test_iter") or []
            passes = given[number] if number < len(given) else 0
            counted = f"mean over {passes} batches of {data['batch']}"
            whole = data["records"]
            if whole:
                part = passes * data["batch"] / whole
                counted += f": {passes * data['batch']:,} of {whole:,} samples ({part:.0%})"
            crop = _crops(data["transform"], training=False)
            rows.append((f"tests averaged{which}", f"{counted}, {crop} of each"))
        rows.append((f"tested{which}", f"every {solver.get('test_interval', 0)} iterations"))
    for name, points in run.series.items():
        if name.startswith("test"):
            rows.append((f"final {name}", f"{points[-1].value:g}"))
    return rows


def _crops(transform: str, training: bool) -> str:
    """What of an image a net sees: the protocol that accuracies depend on."""
    found = re.search(r"crop_size: (\d+)", transform)
    mirrored = ", mirrored at random" if training and "mirror: true" in transform else ""
    if not found:
        return f"the whole{' image' if training else ''}{mirrored}"
    size = f"{found[1]}x{found[1]}"
    return f"one random crop of {size}{mirrored}" if training else f"one centre crop ({size})"


def _hosts(started: Mapping[str, Any]) -> str:
    """All hosts of the job and their devices; what is alike is said once."""
    alike: dict[str, list[str]] = {}
    for host in (started.get("job") or {}).get("hosts", []):
        ranks = f"{host['ranks']} rank{'s' * (host['ranks'] > 1)} each"
        text = (
            f"{ranks} ({'; '.join(host['devices'])}; {host['processor']}, {host['cores']} cores, "
            f"{mebibytes(host['memory_bytes'])})"
        )
        alike.setdefault(text, []).append(host["name"])
    groups = (f"{', '.join(names)}, {text}" for text, names in alike.items())
    return "; ".join(groups) or started["hardware"]["host"]


def _interconnect(started: Mapping[str, Any]) -> str:
    """What this job measured between its ranks when it started."""
    links = (started.get("job") or {}).get("links", [])
    if not links:
        return "none: one rank" if started["ranks"] == 1 else "not measured"
    return "; ".join(
        f"{link['where']} {speed_text(link['latency'], link['bandwidth'])}" for link in links
    )


def _initialisation(run: Run) -> list[str]:
    """The fillers of the training net's weights, each with the number of layers that it has."""
    prototxt = (run.started.get("train") or {}).get("prototxt", "")
    counts: dict[str, int] = {}
    for text in FILLER.findall(prototxt):
        shown = " ".join(text.split()) or 'type: "constant"'
        counts[shown] = counts.get(shown, 0) + 1
    return [f"{text} ({count} layer{'s' * (count > 1)})" for text, count in counts.items()]


def _data(data: Mapping[str, Any]) -> str:
    records = f", {data['records']:,} samples" if data["records"] else ""
    transform = f"; {data['transform']}" if data["transform"] else "; used as they are"
    return f"{data['source']}{records}{transform}"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_value, value))
    return f"{value:g}" if isinstance(value, float) else str(value)

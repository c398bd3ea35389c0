"""What becomes of every field that a prototxt may give: verdicts.txt beside this file says so.

Nothing is ignored in silence: a field without effect on results is logged once where it is given,
and a field that this build cannot honour is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from .messages import FIELDS

HONOURED, NO_EFFECT, REFUSED = "honoured", "no effect", "refused"
_APART = {"BlobProto", "LayerParameter", "NetParameter", "V1LayerParameter"}  # looked at elsewhere

_log = logging.getLogger("pycaffe_fire")
_logged: set[str] = set()
_unread: set[tuple[str, str]] = set()


class Verdict(NamedTuple):
    """`text` is the test that shows a field honoured, why it has no effect, or the way out."""

    kind: str
    text: str


def read_verdicts() -> Iterator[tuple[str, Verdict]]:
    """All lines of the table as ("PoolingParameter.pad", its verdict), in their order."""
    message, verdict = "", Verdict("", "")
    for line in Path(__file__).with_suffix(".txt").read_text().splitlines():
        if line.startswith("["):
            message = line.strip("[]")
        elif line.startswith("    "):
            yield from ((f"{message}.{field}", verdict) for field in line.split())
        elif line and not line.startswith("#"):
            kind, _, text = line.partition(": ")
            verdict = Verdict(kind, text)


@cache
def verdicts() -> dict[str, Verdict]:
    """The verdict on every field: "PoolingParameter.pad"."""
    return dict(read_verdicts())


def refusals(message: Any, path: str = "") -> list[str]:
    """One sentence for every given field that is refused; those without effect are logged.

    A field counts as given where it is not what it would be without.
    """
    found = []
    name = message.DESCRIPTOR.full_name.removeprefix("caffe.")
    for descriptor, value in message.ListFields():
        field = FIELDS[message.DESCRIPTOR.full_name][descriptor.name]
        if field.kind != "message" and not field.repeated and value == descriptor.default_value:
            continue
        place = f"{path}{field.name}"
        kind, text = verdicts()[f"{name}.{field.name}"]
        if kind == REFUSED:
            found.append(f"{place} is not supported; {text}")
        elif kind == NO_EFFECT:
            _log_once(f"{name}.{field.name}", place, text)
        elif field.kind == "message" and field.type_name.removeprefix("caffe.") not in _APART:
            for each in value if field.repeated else [value]:
                found += refusals(each, f"{place}.")
    return found


def tell_unread(kind: str, field: str) -> None:
    """Warn once of a layer's parameters that belong to other types."""
    if verdicts()[f"LayerParameter.{field}"].kind == HONOURED and (kind, field) not in _unread:
        _unread.add((kind, field))
        _log.warning("%s layers do not look at %s; it has no effect", kind, field)


def _log_once(field: str, place: str, why: str) -> None:
    if field not in _logged:
        _logged.add(field)
        _log.info("%s has no effect here: %s", place, why)

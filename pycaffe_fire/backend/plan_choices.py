"""Which plan of an op was the fastest: kept in a file of the user's cache folder for later runs."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from ..errors import BackendError
from ..schema.files import replacing
from .kernel_cache import cache_folder

log = logging.getLogger("pycaffe_fire")

Choices = dict[str, dict[str, str]]  # names of plans, by machine and op


def choices_file(library: str) -> Path:
    return cache_folder() / f"{library}_plans.json"


def read_choices(path: Path) -> str:
    """What a file says; nothing, where there is none or a damaged one."""
    try:
        text = path.read_text()
        if not all(isinstance(names, dict) for names in json.loads(text).values()):
            raise ValueError("not a table of plans")
    except FileNotFoundError:
        return "{}"
    except (OSError, ValueError, AttributeError) as error:
        log.warning("%s: left alone, plans are timed again: %s", path, error)
        return "{}"
    return text


class PlanChoices:
    """Those for one machine, which `about` describes, of the file or as `told`."""

    def __init__(self, path: Path, about: str, told: str | None = None) -> None:
        self._path, self._about = path, about
        choices: Choices = json.loads(read_choices(path) if told is None else told)
        self._names = choices.get(about, {})
        self._kept = True

    def get(self, op: str) -> str | None:
        return self._names.get(op)

    def keep(self, op: str, name: str) -> None:
        """Also in the file, beside what other processes have put there meanwhile."""
        self._names[op] = name
        if not self._kept:
            return
        choices: Choices = json.loads(read_choices(self._path))
        choices.setdefault(self._about, {}).update(self._names)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self._path, BackendError) as temporary:
                temporary.write_text(json.dumps(choices, indent=1))
        except (OSError, BackendError) as error:
            self._kept = False  # nor will others be
            log.warning("timed plans are not kept: %s", error)

"""How this package came here: the models that came with it, and how to install what is missing."""

from __future__ import annotations

import logging
import os
import re
import shutil
from functools import cache
from importlib import metadata
from pathlib import Path

from .errors import FireError
from .registry import did_you_mean

log = logging.getLogger("pycaffe_fire")

NAME = "pycaffe_fire"
PACKAGE = Path(__file__).resolve().parent
MODELS = "models"  # the folder's name, in a checkout as in the paths that prototxts write

# Marks log records that every rank of a job writes alike, so that one of them is enough.
SAID_BY_ALL_RANKS = "said_by_all_ranks"

_REQUIREMENT = re.compile(r"[A-Za-z0-9._-]+(\[[^\]]*\])?")


def checkout() -> Path | None:
    """The source tree that this package is imported from; None where it was installed."""
    root = PACKAGE.parent
    return root if (root / "pyproject.toml").is_file() and (root / MODELS).is_dir() else None


def install_hint(extra: str) -> str:
    """The command that brings what an extra names; the project itself is on no index."""
    root = checkout()
    if root is not None:
        where = "." if root == Path.cwd() else str(root)
        return f"pip install -e '{where}[{extra}]'"
    names = [_quoted(found[0]) for line in _required(extra) if (found := _REQUIREMENT.match(line))]
    return f"pip install {' '.join(names)}"


def _required(extra: str) -> list[str]:
    """The requirements of an extra as the installed package's metadata lists them."""
    condition = re.compile(rf"""extra\s*==\s*["']{re.escape(extra)}["']""")
    try:
        listed = metadata.requires(NAME) or []
    except metadata.PackageNotFoundError:
        listed = []
    return [line for line in listed if condition.search(line)]


def _quoted(name: str) -> str:
    return f"'{name}'" if "[" in name else name


# Models.


def models_folder() -> Path:
    """The folder of the models: inside an installed package, beside it in a checkout."""
    inside = PACKAGE / MODELS
    return inside if inside.is_dir() else PACKAGE.parent / MODELS


def model_names() -> list[str]:
    """The models that came along."""
    folder = models_folder()
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(path.name for path in found if (path / "train_val.prototxt").is_file())


def about_model(name: str) -> str:
    """What a model's prototxt says in its first line."""
    with open(_model(name) / "train_val.prototxt", encoding="utf-8") as file:
        return file.readline().lstrip("# ").rstrip().split(":")[0]


def copy_model(name: str, folder: Path) -> list[Path]:
    """Copy a model to `folder`/`name`; its solvers then name the copied nets. Returns the files."""
    source, target = _model(name), folder / name
    if target.exists():
        raise FireError(f"{target}: is there already; choose another folder")
    try:
        shutil.copytree(source, target)
        made = sorted(path for path in target.rglob("*") if path.is_file())
        for path in made:
            text = path.read_text(encoding="utf-8")
            path.write_text(
                text.replace(f'"{MODELS}/{name}/', f'"{target.as_posix()}/'), encoding="utf-8"
            )
    except OSError as error:
        raise FireError(f"{target}: cannot be written: {error.strerror}") from error
    return made


def _model(name: str) -> Path:
    names = model_names()
    if name not in names:
        raise FireError(
            f'no model "{name}" came along{did_you_mean(name, names)}; there are: '
            f"{', '.join(names)}"
        )
    return models_folder() / name


def find_model_file(path: str | os.PathLike[str]) -> str:
    """The path itself; where nothing is there, but it names something of models/, that."""
    name = os.fspath(path)
    parts = Path(os.path.normpath(name)).parts
    if parts[:1] != (MODELS,) or len(parts) == 1 or os.path.lexists(name):
        return name
    shipped = models_folder().joinpath(*parts[1:])
    if not shipped.exists():
        return name
    _say_once(name, str(shipped))
    return str(shipped)


@cache
def _say_once(name: str, shipped: str) -> None:
    text = "%s is not here: using the one that came with pycaffe_fire, %s"
    log.warning(text, name, shipped, extra={SAID_BY_ALL_RANKS: True})

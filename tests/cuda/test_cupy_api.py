"""What the code asks of CuPy exists there: names, methods and keyword arguments.

cupy_api.json lists the real CuPy's (see make_api.py). Checked are the CUDA backend and all code
that is written against `xp`: layers and the NumPy backend, whose ops the CUDA backend inherits.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PACKAGE = Path(__file__).parents[2] / "pycaffe_fire"
API = json.loads((Path(__file__).parent / "cupy_api.json").read_text())
FILES = sorted(
    path
    for folder in ("layers", "backend/numpy", "backend/cuda", "net", "parallel", "solver")
    for path in (PACKAGE / folder).rglob("*.py")
)
ROOTS = {"xp", "_xp", "cupy", "cp"}


def test_there_is_something_to_check() -> None:
    assert len(FILES) > 50 and len(API["top"]) > 400
    assert sum(len(list(uses(path.read_text()))) for path in FILES) > 200


def uses(text: str) -> Iterator[tuple[int, list[str], ast.Call | None]]:
    """(line, names behind xp, the call they are called in) of every use of an array module."""
    tree = ast.parse(text)
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    inner = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            path = dotted(node)
            roots = [i for i, name in enumerate(path[:3]) if name in ROOTS]
            if roots and path[roots[-1] + 1 :]:
                yield node.lineno, path[roots[-1] + 1 :], calls.get(id(node))


def dotted(node: ast.expr) -> list[str]:
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [*([node.id] if isinstance(node, ast.Name) else []), *reversed(names)]


def problems(text: str) -> list[str]:
    found = []
    for line, path, call in uses(text):
        if path[0] not in API["top"]:
            found.append(f"line {line}: cupy.{path[0]} does not exist")
            continue
        for depth in range(1, len(path)):
            known = API.get(".".join(path[:depth]))
            if known is not None and path[depth] not in known:
                found.append(f"line {line}: cupy.{'.'.join(path)} does not exist")
        found += [f"line {line}: {text}" for text in bad_keywords(".".join(path), call)]
    return found


def bad_keywords(name: str, call: ast.Call | None) -> list[str]:
    signature = API["signatures"].get(name, "")
    if call is None or not signature or "**" in signature:
        return []
    known = set(re.findall(r"(\w+)\s*(?:=|,|\)|:)", signature))
    return [
        f"cupy.{name} has no argument {keyword.arg}: {signature}"
        for keyword in call.keywords
        if keyword.arg and keyword.arg not in known
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_names_and_keywords_exist(path: Path) -> None:
    assert problems(path.read_text()) == []


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("self.xp.frombuffer_nowhere(x)", "cupy.frombuffer_nowhere does not exist"),
        ("xp.cuda.Strom()", "cupy.cuda.Strom does not exist"),
        ("xp.linalg.norme(x)", "cupy.linalg.norme does not exist"),
        ("self._xp.cuda.Event(timing=False)", "has no argument timing"),
        ("self.xp.matmul(a, b, output=c)", "has no argument output"),
    ],
)
def test_mistakes_are_found(text: str, match: str) -> None:
    assert any(match in problem for problem in problems(text))


def arguments(signature: str) -> list[str]:
    """The names of a signature's parameters; C types in front of them do not count."""
    inside = re.sub(r"\[[^]]*\]", "", signature[1 : signature.rindex(")")])
    parts = [part.split("=")[0].split(":")[0].strip() for part in inside.split(",")]
    return [part.split()[-1] for part in parts if part not in ("*", "/", "\\*", "self", "")]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("cuda.cublas.gemmStridedBatchedEx", "blas.gemmStridedBatchedEx"),
        ("cuda.Stream", "cuda.Stream"),
        ("cuda.Event", "cuda.Event"),
        ("cuda.Stream.wait_event", "cuda.Stream.wait_event"),
    ],
)
def test_the_stand_in_takes_what_cupy_takes(cupy: Any, name: str, path: str) -> None:
    thing: Any = cupy
    for part in path.split("."):
        thing = getattr(thing, part)
    mine = [p for p in inspect.signature(thing).parameters if p != "self"]
    assert mine == arguments(API["signatures"][name])


def test_methods_of_arrays_exist() -> None:
    """Every method that NumPy's arrays have and CuPy's lack is called nowhere on arrays."""
    lacking = {n for n in dir(np.ndarray) if not n.startswith("_")} - set(API["ndarray"])
    lacking.discard("resize")  # HDF5 datasets have one too
    assert "setflags" in lacking
    called = {
        (path.name, node.func.attr)
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    assert not {use for use in called if use[1] in lacking}

"""The direction of imports: packages import only what lies below them, and nothing goes in circles.

Imports inside functions count, too. Those for the type checker alone may go either way among the
modules of one package.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import pycaffe_fire

ROOT = Path(pycaffe_fire.__file__).parent
NAME = ROOT.name

# From the top to the ground: a package imports what stands after it.
ORDER = (
    "cli", "board", "pycaffe", "convert", "report", "solver", "parallel", "net", "layers", "data",
    "backend", "schema", "installation", "errors", "registry", "version",
)  # fmt: skip


@dataclass(frozen=True)
class Import:
    """One import of a module of ours by another."""

    importer: str  # "net.graph"; the package itself is ""
    imported: str
    line: int
    typing: bool  # under TYPE_CHECKING

    def __str__(self) -> str:
        return f"{self.importer or NAME} imports {self.imported} (line {self.line})"


def module_files() -> dict[str, Path]:
    """The modules of the package by their names within it; the drop-in is a package of its own."""
    files = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[0] != "dropin":
            files[".".join(parts).removesuffix("__init__").removesuffix(".")] = path
    return files


FILES = module_files()


def imports_of(module: str, source: str, is_package: bool) -> Iterator[Import]:
    """The imports in a module's text of what is ours."""

    def visit(node: ast.AST, typing: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for target in targets(node):
                yield Import(module, target, node.lineno, typing)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for inner in node.body:
                yield from visit(inner, True)
            for inner in node.orelse:
                yield from visit(inner, typing)
        else:
            for child in ast.iter_child_nodes(node):
                yield from visit(child, typing)

    def targets(node: ast.Import | ast.ImportFrom) -> set[str]:
        if isinstance(node, ast.Import):
            full = [alias.name for alias in node.names]
        else:
            base = node.module or ""
            if node.level:
                above = [NAME, *module.split(".")] if module else [NAME]
                above = above[: len(above) + is_package - node.level]
                base = ".".join([*above, base] if base else above)
            full = [longest(f"{base}.{alias.name}") for alias in node.names]
        return {name[len(NAME) + 1 :] for name in full if name.split(".")[0] == NAME}

    return visit(ast.parse(source), False)


def longest(name: str) -> str:
    """What `from a import b` imports: module a.b if there is one, else a."""
    inner = name.removeprefix(f"{NAME}.")
    return name if inner in FILES else name.rpartition(".")[0]


IMPORTS = [
    found
    for module, path in FILES.items()
    for found in imports_of(module, path.read_text(), path.name == "__init__.py")
]


def package(module: str) -> str:
    return module.partition(".")[0]


def wrong_directions(imports: list[Import]) -> list[str]:
    """The imports that do not point downward."""
    return [
        str(i)
        for i in imports
        if package(i.importer)
        and package(i.importer) != package(i.imported)
        and (not i.imported or ORDER.index(package(i.importer)) > ORDER.index(package(i.imported)))
    ]


def cycle(edges: set[tuple[str, str]]) -> list[str]:
    """The nodes that lie on or between circles: what is left when leaves are taken away."""
    nodes = {node for edge in edges for node in edge}
    while True:
        ends = nodes - {a for a, _ in edges} | nodes - {b for _, b in edges}
        if not ends:
            return sorted(nodes)
        nodes -= ends
        edges = {(a, b) for a, b in edges if a in nodes and b in nodes}


def test_every_package_has_its_place() -> None:
    assert {package(module) for module in FILES if module} <= set(ORDER)


def test_imports_point_downward() -> None:
    assert wrong_directions(IMPORTS) == []


def test_packages_form_no_cycle() -> None:
    pairs = {(package(i.importer), package(i.imported)) for i in IMPORTS}
    assert cycle({(a, b) for a, b in pairs if a != b}) == []


def test_modules_form_no_cycle() -> None:
    edges = {(i.importer, i.imported) for i in IMPORTS if not i.typing}
    assert cycle(edges) == []


@pytest.mark.parametrize(
    "text", ["from ..solver import run", "def f():\n  import pycaffe_fire.solver.run"]
)
def test_an_import_upward_is_found(text: str) -> None:
    found = list(imports_of("net.graph", text, False))
    assert [i.imported for i in found] == ["solver.run"]
    assert len(wrong_directions(found)) == 1


def test_a_cycle_is_found() -> None:
    edges = {("a", "b"), ("b", "c"), ("c", "a"), ("c", "leaf"), ("root", "a")}
    assert cycle(edges) == ["a", "b", "c"]

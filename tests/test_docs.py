"""The documentation: links lead somewhere, commands exist, and every page is in the index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "examples/*.md", "models/**/*.md", "tools/**/*.md")
    for path in ROOT.glob(pattern)
)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
COMMAND = re.compile(r"^    (?:mpiexec -n \d+ |srun )?(fire_\w+)((?: .*)?)$", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if not target.startswith(("http:", "https:", "mailto:")):
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_the_index_has_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in index, page.name


def test_the_table_of_commands_has_every_installed_one() -> None:
    scripts = (ROOT / "pyproject.toml").read_text().partition("[project.scripts]")[2]
    installed = re.findall(r'^"?([\w.]+)"? = "', scripts.partition("\n[")[0], re.MULTILINE)
    page = (ROOT / "docs" / "commands.md").read_text().partition("\n## ")[0]
    named = re.findall(r"^\| (`.*?`) \|", page, re.MULTILINE)
    listed = [name for row in named for name in re.findall(r"`(\S+)`", row)]
    assert "fire_train" in installed
    assert sorted(listed) == sorted(installed)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_flags_exist(page: Path) -> None:
    """Of indented command lines, those that begin with one of our commands."""
    sources = {path.stem: path.read_text() for path in (ROOT / "pycaffe_fire" / "cli").glob("*.py")}
    everything = "".join(sources.values())
    for command, rest in COMMAND.findall(page.read_text()):
        assert command in sources, f"{page}: {command}"
        for flag in re.findall(r"(?<=\s)(--[a-z][\w-]*)", rest.split("  #")[0]):
            assert f'"{flag}"' in everything, f"{page}: {command} {flag}"

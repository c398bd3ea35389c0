"""One folder of runs and one server for all tests of the board."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .board_cases import EVIL, Server, serving, train, write_case


@pytest.fixture(scope="session")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished runs, one of them in a folder whose name is markup."""
    folder = tmp_path_factory.mktemp("board")
    write_case(folder)
    train(folder, "good", 0.05)
    train(folder, EVIL, 0.01)
    (folder / "runs" / "good" / "labels.txt").write_text("blue\ngreen\nred <b>\n")
    return folder


@pytest.fixture(scope="session")
def server(case: Path) -> Iterator[Server]:
    pytest.importorskip("uvicorn", reason="the extra `board` is not installed")
    pytest.importorskip("starlette", reason="the extra `board` is not installed")
    with serving(case / "runs") as made:
        yield made

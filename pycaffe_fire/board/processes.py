"""Processes that live beside another one: where they start, and that they end with it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import FireError


def package_home() -> str:
    """Where the package lies. Processes start there, so that no file of a run's folder is taken
    for a module."""
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def end_with_parent() -> None:
    """End this process when whoever started it closes our input, by whatever death."""

    def wait() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def board_beside(folder: str) -> Iterator[str]:
    """A board as a process of its own that ends with ours, however that ends; gives its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pycaffe_fire.cli.fire_board", "--with-parent",
         os.path.abspath(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, cwd=package_home(),
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    try:
        address = process.stdout.readline().strip()
        if not address:
            reason = process.stderr.read().strip() or "it ended"
            raise FireError(f"the board did not start: {reason}")
        yield address
    finally:
        process.stdin.close()  # its sign to end
        process.wait()

"""No job outlives its test: one that a failing test leaves behind would slow down all others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.parallel.ranks import JOBS


@pytest.fixture(autouse=True)
def _no_job_is_left() -> Iterator[None]:
    yield
    while JOBS:
        job = JOBS.pop()
        if job.poll() is None:
            job.kill()  # its ranks end with it
            job.wait()

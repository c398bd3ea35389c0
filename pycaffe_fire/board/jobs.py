"""Work that takes a while, with a progress bar: started once, asked about until it is done."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ..errors import FireError

MOST_JOBS = 32  # whose results are remembered

Work = Callable[[Callable[[int, int], None]], Awaitable[Any]]


@dataclass
class Job:
    """`task` keeps it alive; `result` or `error` is there in the end."""

    task: asyncio.Task[None] | None = None
    done: int = 0
    total: int = 0
    result: Any = None
    error: str = ""
    finished: bool = False

    def answer(self) -> dict[str, Any]:
        if not self.finished:
            return {"state": "running", "done": self.done, "total": self.total}
        if self.error:
            return {"state": "failed", "error": self.error}
        return {"state": "done", "result": self.result}


class Jobs:
    """By a key that says what is computed of what."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[tuple[Any, ...], Job] = OrderedDict()

    def get(self, key: tuple[Any, ...]) -> dict[str, Any]:
        job = self._jobs.get(key)
        return job.answer() if job is not None else {"state": "none"}

    def start(self, key: tuple[Any, ...], work: Work) -> dict[str, Any]:
        """Start it, unless it runs already or is done."""
        job = self._jobs.get(key)
        if job is None or (job.finished and job.error):
            job = self._jobs[key] = Job()
            job.task = asyncio.get_running_loop().create_task(self._run(job, work))
        self._forget()
        return job.answer()

    async def _run(self, job: Job, work: Work) -> None:
        def progress(done: int, total: int) -> None:
            job.done, job.total = done, total

        try:
            job.result = await work(progress)
        except FireError as error:
            job.error = str(error)
        except asyncio.CancelledError:
            job.error = "cancelled"
            raise
        finally:
            job.finished = True

    def cancel(self, key: tuple[Any, ...]) -> None:
        job = self._jobs.pop(key, None)
        if job is not None and job.task is not None:
            job.task.cancel()

    def _forget(self) -> None:
        for key, job in list(self._jobs.items()):
            if len(self._jobs) > MOST_JOBS and job.finished:
                del self._jobs[key]

    def close(self) -> None:
        for key in list(self._jobs):
            self.cancel(key)

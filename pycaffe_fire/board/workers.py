"""The board's side of its worker processes: started when needed, ended to make room for others."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ..errors import FireError
from .processes import package_home

MOST_WORKERS = 3
LONGEST_ANSWER = 1 << 27  # bytes
PATIENCE = 300.0  # seconds without a word

Progress = Callable[[int, int], None]


class Worker:
    """One process with one thing opened in it; requests wait for their turn."""

    def __init__(self, kind: str, folder: str, arguments: dict[str, Any]) -> None:
        self._opening = {"open": kind, "folder": folder, "arguments": arguments}
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()
        self.busy = 0

    async def ask(self, what: str, progress: Progress | None = None, **arguments: Any) -> Any:
        """The result of an operation; raises FireError with the worker's own sentence."""
        self.busy += 1
        try:
            async with self._lock:
                if self._process is None:
                    await self._start()
                return await self._exchange({"do": what, "arguments": arguments}, progress)
        except BaseException:
            if not isinstance(sys.exc_info()[1], FireError):
                self.end()  # in the middle of an answer, and so of no more use
            raise
        finally:
            self.busy -= 1

    async def _start(self) -> None:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pycaffe_fire.board.worker", cwd=package_home(),
            limit=LONGEST_ANSWER, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            await self._exchange(self._opening, None)
        except FireError:
            self.end()
            raise

    async def _exchange(self, request: dict[str, Any], progress: Progress | None) -> Any:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        while True:
            try:
                line = await asyncio.wait_for(process.stdout.readline(), PATIENCE)
            except asyncio.TimeoutError:
                self.end()
                raise FireError("the worker process gave no answer and was ended") from None
            if not line:
                self._process = None
                raise FireError("the worker process ended; was there too little memory?")
            answer = json.loads(line)
            if "error" in answer:
                raise FireError(answer["error"])
            if "result" in answer:
                return answer["result"]
            if progress is not None:
                progress(*answer["progress"])

    def end(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        self._process = None


class Workers:
    """At most MOST_WORKERS of them; the one that was asked longest ago makes room."""

    def __init__(self) -> None:
        self._workers: OrderedDict[tuple[Any, ...], Worker] = OrderedDict()

    def get(
        self, kind: str, key: tuple[Any, ...], folder: str, arguments: dict[str, Any]
    ) -> Worker:
        whole = (kind, *key)
        if whole not in self._workers:
            self._make_room()
            self._workers[whole] = Worker(kind, folder, arguments)
        self._workers.move_to_end(whole)
        return self._workers[whole]

    def _make_room(self) -> None:
        for key, worker in list(self._workers.items()):
            if len(self._workers) < MOST_WORKERS:
                return
            if not worker.busy:
                worker.end()
                del self._workers[key]

    def drop(self, worker: Worker) -> None:
        worker.end()
        for key, each in list(self._workers.items()):
            if each is worker:
                del self._workers[key]

    def close(self) -> None:
        for worker in self._workers.values():
            worker.end()
        self._workers.clear()

"""Other libraries' runtimes in a process of their own, and its death in words."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from numpy.typing import NDArray

from ..errors import ConvertError
from . import runtime_child
from .libraries import need_installed

Array = NDArray[Any]
Own = TypeVar("Own", bound="Isolated")
Answer = tuple[dict[str, Any], list[Array]]

IDLE = 10.0  # seconds after which a process without work ends
PATIENCE = 10.0  # seconds that a process which closed its output may take to end
_MODULES = {"onnxruntime": "onnxruntime", "OpenCV": "cv2"}
_DEATHS = {
    "SIGFPE": "a division by zero",
    "SIGSEGV": "an access to memory that it does not have",
    "SIGBUS": "an access to memory that it does not have",
    "SIGABRT": "it gave up by itself",
    "SIGILL": "an instruction that this processor does not know",
    "SIGKILL": "the system ended it, most likely because memory ran out",
}

# The packages above the child's module are entered without running them: they import much else.
_START = """
import sys, types
sys.path[:] = {path!r}
for name, folder in {packages!r}.items():
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [folder]
from {module} import main
main()
"""


class Isolated:
    """A library that runs one model at a time in a process of its own; a context manager.

    A model from elsewhere can end a library's process. Here that is a ConvertError that says how.
    The process starts at once and loads the library while this one goes on. It ends when the block
    fails, on Ctrl-C, and when this process ends in any way; after a block that succeeds it waits a
    few seconds for the next one.
    """

    def __init__(self, library: str) -> None:
        need_installed(_MODULES[library])
        self.library = library
        self._process = _SPARE.take() or _Process()

    def __enter__(self: Own) -> Own:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        if kind is None:
            _SPARE.put(self._process)
        else:
            self._process.end()

    def open(self, settings: Mapping[str, Any], arrays: Sequence[Array] = ()) -> dict[str, Any]:
        """Open a model instead of the one before, and tell the library's version; runtime_child
        says what `settings` may hold."""
        head = {"do": "open", "library": self.library, **settings}
        return self._ask("loading", head, arrays)[0]

    def run(self, names: Iterable[str], feeds: Mapping[str, Array]) -> list[Array]:
        """The tensors of these names, which must consist of numbers."""
        names = list(names)
        head = {"do": "run", "names": names, "wanted": names, "feeds": list(feeds)}
        return self._ask("running", head, list(feeds.values()))[1]

    def shapes(
        self, names: Sequence[str], feeds: Mapping[str, Array], wanted: Sequence[str]
    ) -> tuple[dict[str, tuple[int, ...]], dict[str, Array]]:
        """The shapes of the tensors of these names, and the values of those that are wanted."""
        head = {"do": "run", "names": list(names), "wanted": list(wanted), "feeds": list(feeds)}
        answer, arrays = self._ask("running", head, list(feeds.values()))
        shapes = {name: tuple(shape) for name, shape in answer["shapes"].items()}
        return shapes, dict(zip(wanted, arrays, strict=True))

    def _ask(self, doing: str, head: dict[str, Any], arrays: Sequence[Array]) -> Answer:
        try:
            answer, found = self._process.ask(head, arrays)
        except (OSError, EOFError):
            raise ConvertError(
                f"{self.library} {self._process.death()} while {doing} the model; the model is "
                f"damaged, made to do that, or more than this release of {self.library} can take: "
                f"get the file from its source again, or try another release"
            ) from None
        if "error" in answer:
            raise ConvertError(f"{self.library} refuses the model: {answer['error']}")
        return answer, found


class _Process:
    """A process that runs `runtime_child.main`."""

    def __init__(self) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `end`)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _code()], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._said, start_new_session=True,  # Ctrl-C is for us
        )  # fmt: skip
        assert self._process.stdin is not None and self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self.parent = os.getpid()

    def ask(self, head: dict[str, Any], arrays: Sequence[Array] = ()) -> Answer:
        """Send a request and wait for its answer; raises OSError or EOFError if it has ended."""
        runtime_child.send(self._requests, head, arrays)
        return runtime_child.receive(self._answers)

    def death(self) -> str:
        """How it ended, and its last words."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(PATIENCE)
        status = self._process.poll()
        end = f"ended with status {status}"
        if status is not None and status < 0:
            name = _signal_name(-status)
            end = f"died of {name}" + (f" ({_DEATHS[name]})" if name in _DEATHS else "")
        self._said.seek(0)
        words = self._said.read().decode(errors="replace").split()
        return f"{end}, saying {' '.join(words)[-300:]!r}," if words else end

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._requests, self._answers, self._said):
            with contextlib.suppress(OSError):  # what was not sent before it ended
                stream.close()


class _Spare:
    """At most one process without work, for a few seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: _Process | None = None
        self._timer: threading.Timer | None = None

    def take(self) -> _Process | None:
        """The process that waits, if there is one; not that of a process which forked us."""
        found = self._replace(None)
        return found if found is not None and found.parent == os.getpid() else None

    def put(self, process: _Process) -> None:
        """Let a process wait."""
        try:
            process.ask({"do": "close"})
        except (OSError, EOFError):
            process.end()
        else:
            self._end(self._replace(process))

    def _replace(self, process: _Process | None) -> _Process | None:
        with self._lock:
            found, self._process = self._process, process
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if process is not None:
                self._timer = threading.Timer(IDLE, lambda: self._end(self.take()))
                self._timer.daemon = True
                self._timer.start()
        return found

    @staticmethod
    def _end(process: _Process | None) -> None:
        if process is not None:
            process.end()


_SPARE = _Spare()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _code() -> str:
    folder, module = Path(__file__).parent, runtime_child.__name__
    package = module.rpartition(".")[0]
    packages = {package.rpartition(".")[0]: str(folder.parent), package: str(folder)}
    return _START.format(path=sys.path, packages=packages, module=module)

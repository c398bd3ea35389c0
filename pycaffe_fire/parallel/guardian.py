"""A shell beside each rank that says so when the rank is killed.

mpiexec ends all ranks as soon as it notices that one is gone, often before the others can tell
which. It notices by connections that end; the guardian holds copies of them until it has spoken. It
belongs to the rank's process group, so it ends silently with the ranks that mpiexec kills.

A rank that is to take the others with it must end after its guardian: where mpiexec has collected a
rank's status before its connection ends, it kills nobody.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from .ending import PMI_VARIABLE

_END = "end"
_MARKERS = "pycaffe_fire-failed-"
_KEPT = 3600.0  # seconds after which nobody looks at a marker any more
_SCRIPT = """
trap '' HUP INT
last=starting
while read -r line; do last=$line; done
[ "$last" = end ] || [ -e "$2" ] || printf '%s; last seen: %s\\n' "$1" "$last" >&2
"""


def _marker(job: str) -> Path:
    """There once a rank of this job and host has begun to tell of its failure."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    return Path(tempfile.gettempdir()) / f"{_MARKERS}{user}-{job}"


def first_to_fail(job: str) -> bool:
    """Is this the first rank of the job on this host to fail? Others end because of it."""
    try:
        os.close(os.open(_marker(job), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    except OSError:
        return True  # no temporary folder: better told twice than never
    return True


def _remove_old_markers() -> None:
    for marker in Path(tempfile.gettempdir()).glob(_MARKERS + "*"):
        with contextlib.suppress(OSError):
            if time.time() - marker.stat().st_mtime > _KEPT:
                marker.unlink()


class Guardian:
    """Told now and then what its rank is doing; where there can be none, nothing happens."""

    def __init__(self, rank: int, what: str, job: str) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        connection = os.environ.get(PMI_VARIABLE, "")
        shell = shutil.which("sh")
        if not shell or not connection.isdecimal():
            return
        _remove_old_markers()
        died = f"{what}: rank {rank} on {socket.gethostname()} died"
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                [shell, "-c", _SCRIPT, shell, died, str(_marker(job))],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[int(connection)],
            )  # fmt: skip

    @property
    def present(self) -> bool:
        return self._process is not None

    def tell(self, doing: str) -> None:
        process = self._process  # another thread may close it meanwhile
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                process.stdin.write(doing.replace("\n", " ").encode() + b"\n")
                process.stdin.flush()

    def close(self) -> None:
        """The rank may end from now on; of its connections there are no copies any more."""
        self.tell(_END)
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.wait()

"""A shell beside each rank that says so when the rank is killed.

mpiexec ends all ranks as soon as it notices that one is gone, often before the others can tell
which. It notices by connections that end; the guardian holds copies of them until it has spoken. It
belongs to the rank's process group, so it ends silently with the ranks that mpiexec kills.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

PMI_VARIABLE = "PMI_FD"  # the connection to a launcher of MPICH's kind
_END = "end"
_SCRIPT = """
trap '' HUP INT
last=starting
while read -r line; do last=$line; done
[ "$last" = end ] || [ -e "$2" ] || printf '%s; last seen: %s\\n' "$1" "$last" >&2
"""


def _failed() -> Path:
    """There once a rank of this job and host has told of its failure: others end because of it.

    The launcher's process on this host is the parent of all its ranks.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    return Path(tempfile.gettempdir()) / f"pycaffe_fire-{user}-{os.getppid()}-failed"


def note_failure() -> None:
    """What ends from now on is no loss to speak of."""
    with contextlib.suppress(OSError):
        os.close(os.open(_failed(), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


class Guardian:
    """Told now and then what its rank is doing; where there can be none, nothing happens."""

    def __init__(self, rank: int, what: str) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        connection = os.environ.get(PMI_VARIABLE, "")
        shell = shutil.which("sh")
        if not shell or not connection.isdecimal():
            return
        with contextlib.suppress(OSError):
            _failed().unlink()  # of an older job whose launcher had this number
        died = f"{what}: rank {rank} on {socket.gethostname()} died"
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                [shell, "-c", _SCRIPT, shell, died, str(_failed())],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[int(connection)],
            )  # fmt: skip

    @property
    def present(self) -> bool:
        return self._process is not None

    def tell(self, doing: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                self._process.stdin.write(doing.replace("\n", " ").encode() + b"\n")
                self._process.stdin.flush()

    def close(self) -> None:
        """The rank may end from now on."""
        self.tell(_END)
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            self._process.wait()
            self._process = None

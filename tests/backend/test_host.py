"""What this machine's processor has, from what the system says of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pycaffe_fire.backend import host

INTEL = "processor\t: 0\nmodel name\t: Intel\nflags\t\t: fpu avx2 avx512f avx512_vnni\nbugs\t\t:\n"


@pytest.mark.parametrize(
    ("text", "limit", "has"),
    [
        (INTEL, None, True),
        (INTEL.replace(" avx512f", ""), None, False),
        ("", None, False),  # not Linux
        (INTEL, "AVX2", False),
        (INTEL, "avx2_vnni", False),
        (INTEL, "SSE41", False),
        (INTEL, "AVX512_CORE", True),
        (INTEL, "all", True),
    ],
)
def test_vectors_of_16_numbers(
    monkeypatch: pytest.MonkeyPatch, text: str, limit: str | None, has: bool
) -> None:
    monkeypatch.setattr(host, "_read", lambda path: text)
    for name in host.ISA_LIMITS:
        monkeypatch.delenv(name, raising=False)
    if limit is not None:
        monkeypatch.setenv(host.ISA_LIMITS[1], limit)
    assert host.has_avx512() is has


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("flag", ["-v", "-d"])
def test_a_limit_of_the_shell_counts(flag: str) -> None:
    """A batch system may give a process less than the machine has."""
    code = "from pycaffe_fire.backend.host import free_bytes; print(free_bytes())"
    limited = f'ulimit {flag} {4 << 20}; exec "$0" -c "$1"'  # kilobytes
    said = subprocess.run(
        ["sh", "-c", limited, sys.executable, code], capture_output=True, text=True, check=True
    )
    assert 0 < int(said.stdout) < 4 << 30

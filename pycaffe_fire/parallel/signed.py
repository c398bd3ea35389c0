"""Lines between a job's processes that nobody else can write.

Whoever listens greets a caller with a number used once; every line carries a code made of the job's
secret, that number, the line's place and its text. The secret itself never travels this way: it is
given to ranks in their environment or by MPI.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from typing import Any

SECRET_VARIABLE = "PYCAFFE_FIRE_SECRET"
LONGEST_LINE = 4096  # bytes
_CODE = 64  # hex digits


def new_secret() -> str:
    return secrets.token_hex(32)


def greeting() -> bytes:
    """What a caller is told first."""
    return secrets.token_hex(16).encode() + b"\n"


def is_greeting(said: bytes) -> bool:
    """Can this have come from somebody who listens?"""
    return re.fullmatch(rb"[0-9a-f]{32}\n", said) is not None


class Signer:
    """One direction of one connection, for the one who writes and the one who checks."""

    def __init__(self, secret: str, greeting: bytes) -> None:
        self._key = secret.encode() + greeting.strip()
        self._place = 0

    def _code(self, text: bytes) -> bytes:
        said = b"%d %s" % (self._place, text)
        self._place += 1
        return hmac.new(self._key, said, hashlib.sha256).hexdigest().encode()

    def line(self, said: dict[str, Any]) -> bytes:
        text = json.dumps(said).encode()
        return self._code(text) + b" " + text + b"\n"

    def read(self, line: bytes) -> dict[str, Any]:
        """What was said; a ValueError if it was not said by one of us."""
        code, text = line[:_CODE], line[_CODE + 1 :].strip()
        if not hmac.compare_digest(code, self._code(text)):
            raise ValueError("a line that is not of this job")
        said = json.loads(text)
        if not isinstance(said, dict):
            raise ValueError("not a message")
        return said

"""Reading the lines that glog wrote: Caffe's logs, and ours in its format."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from datetime import datetime

from ..errors import FireError

LINE = re.compile(r"[IWEF](\d{4}|\d{8}) (\d\d:\d\d:\d\d\.\d+)\s+\d+ [^\]]+\] ?(.*)")
LEAP_YEAR = 1972  # in which every day exists
OUTPUT = re.compile(r"\s*(Train|Test) net output #\d+: (\S+) = (\S+)")


def glog_lines(path: str) -> Iterator[tuple[datetime, str]]:
    """Time and message of each line. Where lines leave out the year, as old ones do, only the
    time between them is right."""
    year, before = LEAP_YEAR, ""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                found = LINE.match(line)
                if not found:
                    continue
                day = found[1]
                year += day < before
                before = day
                full = day if len(day) == 8 else f"{year}{day}"
                with contextlib.suppress(ValueError):  # no such day
                    yield datetime.strptime(f"{full} {found[2]}", "%Y%m%d %H:%M:%S.%f"), found[3]
    except OSError as error:
        raise FireError(f"{path}: cannot be read: {error.strerror}") from None

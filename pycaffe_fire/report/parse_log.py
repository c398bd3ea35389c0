"""Caffe's logs as tables: what its parse_log.py makes of them, column for column."""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Sequence

from ..errors import FireError
from ..schema.files import replacing
from .glog_lines import OUTPUT, glog_lines

ITERATION = re.compile(r"Iteration (\d+)")
RATE = re.compile(r"lr = (\S+)")

Row = dict[str, float]


def parse_log(path: str) -> tuple[list[Row], list[Row]]:
    """Rows of the training net's outputs and of the test nets': NumIters, Seconds, LearningRate
    and one column for each output. Seconds count from the line "Solving ...".

    A row has the last rate that the log told before it; the first one, the second one's.
    """
    tables: dict[str, list[Row]] = {"Train": [], "Test": []}
    iteration, rate, start = -1.0, math.nan, None
    for when, text in glog_lines(path):
        if start is None or (iteration < 0 and text.startswith("Solving ")):
            start = when
        if found := ITERATION.search(text):
            iteration = float(found[1])
        if iteration < 0:
            continue
        if found := RATE.search(text):
            rate = _number(found[1])
        if found := OUTPUT.match(text):
            rows, name = tables[found[1]], found[2]
            if not rows or rows[-1]["NumIters"] != iteration or name in rows[-1]:
                seconds = (when - start).total_seconds()
                rows.append({"NumIters": iteration, "Seconds": seconds, "LearningRate": rate})
            rows[-1][name] = _number(found[3])
    for rows in tables.values():
        if len(rows) > 1 and math.isnan(rows[0]["LearningRate"]):
            rows[0]["LearningRate"] = rows[1]["LearningRate"]
    if not any(tables.values()):
        raise FireError(f"{path}: no net outputs in it; is it the log of a Caffe training run?")
    return tables["Train"], tables["Test"]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def write_tables(log: str, folder: str, delimiter: str) -> list[str]:
    """Write FOLDER/LOG.train and FOLDER/LOG.test; their names."""
    if not os.path.isdir(folder):
        raise FireError(f"{folder}: no such folder to write tables to")
    written = []
    for ending, rows in zip(("train", "test"), parse_log(log), strict=True):
        path = os.path.join(folder, f"{os.path.basename(log)}.{ending}")
        _write(path, rows, delimiter)
        written.append(path)
    return written


def _write(path: str, rows: Sequence[Row], delimiter: str) -> None:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with replacing(path, FireError) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, delimiter=delimiter)
        if rows:
            writer.writeheader()
        writer.writerows(rows)

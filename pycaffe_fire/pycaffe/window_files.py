"""Lists of windows to look at, and what a Detector found in them, as files."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import DataError
from ..schema.files import replacing

COORDINATES = ("ymin", "xmin", "ymax", "xmax")


def read_names(path: str) -> list[str]:
    """Names of images: the lines of a .txt, or the column "filename" of a .csv, each once."""
    if path.endswith(".csv"):
        return list(dict(read_windows(path)))
    lines = [line.strip() for line in _read(path)]
    return [line for line in lines if line]


def read_windows(path: str) -> list[tuple[str, list[Any]]]:
    """A .csv with columns filename, ymin, xmin, ymax, xmax: every image with its windows."""
    table = csv.DictReader(_read(path), skipinitialspace=True)
    missing = [n for n in ("filename", *COORDINATES) if n not in (table.fieldnames or ())]
    if missing:
        raise DataError(
            f"{path}: its first line must name the columns filename, {', '.join(COORDINATES)}; "
            f"{', '.join(missing)} not found"
        )
    found: dict[str, list[Any]] = {}
    for row in table:
        try:
            window = np.array([float(row[name]) for name in COORDINATES])
        except (TypeError, ValueError):
            raise DataError(
                f"{path}:{table.line_num}: {', '.join(COORDINATES)} must be numbers, got {row}"
            ) from None
        found.setdefault(row["filename"], []).append(window)
    return list(found.items())


def _read(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.readlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read: {reason}") from None


def write_detections(path: str, detections: Sequence[dict[str, Any]]) -> None:
    """To a .csv (filename, coordinates, class0, class1, ...) or a .h5: pycaffe's table "df" where
    pandas can write one, else datasets filename, window and prediction."""
    names = [str(found["filename"]) for found in detections]
    windows = np.array([np.asarray(found["window"], float) for found in detections])
    scores = np.array([np.ravel(found["prediction"]) for found in detections])
    if path.endswith((".h5", ".hdf5")):
        with replacing(path, DataError) as temporary:
            if not _write_table(str(temporary), names, windows, scores):
                _write_datasets(str(temporary), names, windows, scores)
        return
    header = ["filename", *COORDINATES, *(f"class{i}" for i in range(scores.shape[1]))]
    with replacing(path, DataError) as temporary, temporary.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for name, window, row in zip(names, windows, scores, strict=True):
            writer.writerow([name, *window.tolist(), *row.tolist()])


def _write_table(path: str, names: list[str], windows: Any, scores: Any) -> bool:
    """As pycaffe's detect.py does: what `pandas.read_hdf(path, "df")` reads. False where pandas, or
    the library that it writes HDF5 with, is not installed."""
    try:
        import pandas
        import tables  # noqa: F401 (pandas needs it, and says so too late)
    except ImportError:
        return False
    columns: dict[str, Any] = {"prediction": list(scores)}
    columns.update(zip(COORDINATES, windows.T, strict=True))
    frame = pandas.DataFrame(columns, index=pandas.Index(names, name="filename"))
    with warnings.catch_warnings():  # arrays in a column are pickled, which is pycaffe's format
        warnings.simplefilter("ignore")
        frame.to_hdf(path, key="df", mode="w")
    return True


def _write_datasets(path: str, names: list[str], windows: Any, scores: Any) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        file["filename"] = names
        file["window"], file["prediction"] = windows, scores

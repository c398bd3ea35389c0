"""What `caffe test` says of single classes: their accuracies, and which are taken for which."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..errors import DataError, FireError
from ..parallel.leaves import Output
from ..schema.files import replacing
from ..solver.confusion import Confusion
from .json_log import output_values, plain

MATRIX = 20  # classes that a matrix on a terminal can have
MISTAKES = 10  # that are listed where there are more
NAME = 24  # characters


def read_class_names(path: str, found: Sequence[Confusion] = ()) -> list[str]:
    """One name per line; there must be as many as there are classes."""
    try:
        with open(path, encoding="utf-8") as file:
            names = [line.strip() for line in file if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8 text"
        raise DataError(f"{path}: names of classes cannot be read: {reason}") from None
    for confusion in found:
        if len(confusion.counts) != len(names):
            raise DataError(
                f'{path}: has {len(names)} names, layer "{confusion.layer}" has '
                f"{len(confusion.counts)} classes; give one name per line"
            )
    return names


def class_lines(found: Confusion, names: Sequence[str] = ()) -> list[str]:
    """A line per class, then the matrix or, for many classes, the most frequent mistakes."""
    titles = [name[:NAME] for name in names] or [str(i) for i in range(len(found.counts))]
    wide = max(len("class"), *map(len, titles))
    lines = [
        f"{found.layer}: {found.accuracy:.2%} of {found.samples:,} samples, mean IoU "
        f"{found.mean_iou:.2%}",
        f"{'class':<{wide}}  accuracy      IoU  samples",
    ]
    shares = zip(found.class_accuracies(), found.class_ious(), strict=True)
    for title, values, row in zip(titles, shares, found.counts, strict=True):
        accuracy, iou = ("-" if value is None else f"{value:.2%}" for value in values)
        lines.append(f"{title:<{wide}}  {accuracy:>8}  {iou:>7}  {row.sum():>7,}")
    if len(titles) <= MATRIX:
        return [*lines, "", *_matrix(found, titles, wide)]
    worst = found.worst(MISTAKES)
    lines += ["", "most frequent mistakes:"] if worst else []
    return lines + [f"{count:>7,}  {titles[a]} taken for {titles[b]}" for count, a, b in worst]


def _matrix(found: Confusion, titles: Sequence[str], wide: int) -> list[str]:
    cell = max(5, len(f"{found.counts.max():,}"), len(str(len(titles)))) + 1
    head = "".join(f"{label:>{cell}}" for label in range(len(titles)))
    lines = [f"rows: labels, columns: predictions by number\n{'':<{wide}}{head}"]
    for title, row in zip(titles, found.counts, strict=True):
        cells = "".join(f"{count:>{cell},}" if count else f"{'.':>{cell}}" for count in row)
        lines.append(f"{title:<{wide}}{cells}")
    return lines


def write_scores(
    path: str, iterations: int, outputs: list[Output], found: Sequence[Confusion],
    names: Sequence[str],
) -> None:  # fmt: skip
    """The results as JSON: means of the outputs and, where counted, what each class was taken for;
    rows of `confusion` are labels, columns predictions."""
    record = {
        "iterations": iterations,
        "outputs": output_values(outputs),
        "classes": list(names) or None,
        "per_class": [confusion.record() for confusion in found],
    }
    with replacing(path, FireError) as temporary:
        temporary.write_text(json.dumps(plain(record), allow_nan=False) + "\n", encoding="utf-8")

"""SSD's AnnotatedDatum records: a Datum and groups of boxes, one group for each class."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from .. import schema
from ..errors import DataError
from ..schema.wire import LENGTH, VARINT, DamagedError, Parts, walk
from .datum import Datum, parse_datum
from .objects import BOX, DIFFICULT, INSTANCE, LABEL, NO_OBJECTS, Floats

_DATUM, _TYPE, _GROUP = 1, 2, 3


class Annotated(NamedTuple):
    """One record; `type` is None where it does not say what its annotations are."""

    datum: Datum
    type: int | None
    objects: Floats


def is_annotated(record: bytes | memoryview) -> bool:
    """Is this an AnnotatedDatum? Its field 1 is a message, that of a Datum a number."""
    return bytes(record[:1]) == bytes([_DATUM << 3 | LENGTH])


def parse_annotated(record: bytes | memoryview, where: str) -> Annotated:
    """Read a serialised AnnotatedDatum; `where` names database and key in errors."""
    view: Any = memoryview(record)
    datum, kind, groups = view[:0], None, []
    try:
        for number, wire, a, b in walk(view, 0, len(view)):
            if (number, wire) == (_DATUM, LENGTH):
                datum = view[a:b]
            elif (number, wire) == (_TYPE, VARINT):
                kind = a
            elif (number, wire) == (_GROUP, LENGTH):
                groups.append(schema.AnnotationGroup.FromString(bytes(view[a:b])))
    except (DamagedError, DecodeError) as error:
        raise DataError(f"{where}: is not an AnnotatedDatum record: {error}") from None
    if not len(datum):
        raise DataError(
            f"{where}: has no image; is this a database of AnnotatedDatum records, as "
            "convert_annoset writes them?"
        )
    return Annotated(parse_datum(datum, where), kind, _objects(groups, where))


def _objects(groups: Iterable[Any], where: str) -> Floats:
    rows = []
    for group in groups:
        for note in group.annotation:
            box = note.bbox
            place = (box.xmin, box.ymin, box.xmax, box.ymax)
            rows.append((group.group_label, note.instance_id, *place, float(box.difficult)))
    objects = np.array(rows, np.float32) if rows else NO_OBJECTS
    if not np.isfinite(objects).all():
        raise DataError(f"{where}: has a box that is not finite")
    return objects


def encode_annotated(datum: bytes, objects: Floats | None) -> bytes:
    """An AnnotatedDatum of a serialised Datum; objects of one label that follow each other are a
    group. None stands for a record without a type of annotation, whose label is the Datum's."""
    parts = Parts()
    parts.add_bytes(_DATUM, datum)
    if objects is not None:
        parts.add_number(_TYPE, schema.AnnotatedDatum.BBOX)
        for label, rows in groupby(objects.tolist(), key=lambda row: int(row[LABEL])):
            group = schema.AnnotationGroup(group_label=label)
            for row in rows:
                note = group.annotation.add(instance_id=int(row[INSTANCE]))
                xmin, ymin, xmax, ymax = row[BOX]
                note.bbox.xmin, note.bbox.ymin = xmin, ymin
                note.bbox.xmax, note.bbox.ymax = xmax, ymax
                note.bbox.difficult = bool(row[DIFFICULT])
            parts.add_bytes(_GROUP, group.SerializeToString(deterministic=True))
    return b"".join(bytes(piece) for piece in parts.pieces)

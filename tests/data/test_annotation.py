"""AnnotatedDatum records: what protobuf writes is read, and what is written protobuf reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pycaffe_fire import schema
from pycaffe_fire.data.annotation import encode_annotated, parse_annotated
from pycaffe_fire.data.datum import datum_image, encode_datum
from pycaffe_fire.errors import DataError

IMAGE = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
ROWS = np.array(
    [[3, 0, 0.1, 0.2, 0.3, 0.4, 0], [3, 1, 0, 0, 1, 1, 1], [1, 0, 0.5, 0.5, 0.75, 1, 0]], np.float32
)
NAN = np.array([0, 0, np.nan, 0, 0, 0, 0], np.float32)


def message() -> Any:
    found = schema.AnnotatedDatum(type=schema.AnnotatedDatum.BBOX)
    found.datum.ParseFromString(encode_datum(IMAGE, 7))
    for label in (3, 1):
        group = found.annotation_group.add(group_label=label)
        for row in ROWS[ROWS[:, 0] == label].tolist():
            note = group.annotation.add(instance_id=int(row[1]))
            note.bbox.xmin, note.bbox.ymin, note.bbox.xmax, note.bbox.ymax = row[2:6]
            note.bbox.difficult = bool(row[6])
    return found


def test_records_are_those_of_protobuf() -> None:
    found = parse_annotated(message().SerializeToString(), "here")
    assert found.type == schema.AnnotatedDatum.BBOX and found.datum.label == 7
    assert np.array_equal(found.objects, ROWS)
    assert np.array_equal(datum_image(found.datum, "here"), IMAGE)
    written = encode_annotated(encode_datum(IMAGE, 7), ROWS)
    assert schema.AnnotatedDatum.FromString(written) == message()


def test_records_without_objects_or_a_type() -> None:
    datum = encode_datum(IMAGE, 2)
    assert parse_annotated(encode_annotated(datum, ROWS[:0]), "here").objects.shape == (0, 7)
    plain = parse_annotated(encode_annotated(datum, None), "here")
    assert plain.type is None and plain.datum.label == 2


@pytest.mark.parametrize(
    "record, error",
    [
        (b"\x0a\x50abc", "here: is not an AnnotatedDatum record"),
        (encode_datum(IMAGE, 1), "is this a database of AnnotatedDatum records"),
        (b"", "has no image"),
        (encode_annotated(encode_datum(IMAGE, 1), ROWS) + b"\x1a\x02\x12\x70", "not an Annotated"),
        (encode_annotated(encode_datum(IMAGE, 1), ROWS + NAN), "a box that is not finite"),
    ],
)
def test_damaged_records(record: bytes, error: str) -> None:
    with pytest.raises(DataError, match=error):
        parse_annotated(record, "here")

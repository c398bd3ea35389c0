"""convert_annoset: VOC's XML, JSON and text to AnnotatedDatums, and errors with file and line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pycaffe_fire.cli import convert_annoset
from pycaffe_fire.data.annotation import parse_annotated
from pycaffe_fire.data.datum import datum_image
from pycaffe_fire.data.db import open_database
from pycaffe_fire.data.image import read_image
from pycaffe_fire.data.resize import resize

XML = """<annotation>
 <size><width>50</width><height>40</height><depth>3</depth></size>
 <object>
  <name>dog</name><difficult>0</difficult>
  <bndbox><xmin>5</xmin><ymin>10</ymin><xmax>25</xmax><ymax>30</ymax></bndbox>
 </object>
 <object>
  <name>cat</name><difficult>1</difficult>
  <bndbox><xmin>0</xmin><ymin>0</ymin><xmax>50</xmax><ymax>40</ymax></bndbox>
 </object>
 <object>
  <name>dog</name>
  <bndbox><xmin>1.5</xmin><ymin>2</ymin><xmax>10</xmax><ymax>12</ymax></bndbox>
 </object>
</annotation>
"""
JSON = {
    "image": {"height": 40, "width": 50},
    "annotation": [
        {"bbox": [5, 10, 20, 20], "category_id": 2, "iscrowd": 0},
        {"bbox": [0, 0, 50, 40], "category_id": 1, "iscrowd": 1},
        {"bbox": [1.5, 2, 8.5, 10], "category_id": 2},
    ],
}
TXT = "2 5 10 25 30\n\n1 0 0 50 40\n2 1.5 2 10 12\n"
ROWS: list[list[float]] = [
    [2, 0, 0.1, 0.25, 0.5, 0.75, 0],
    [2, 1, 0.03, 0.05, 0.2, 0.3, 0],
    [1, 0, 0, 0, 1, 1, 1],
]
MAP = """item { name: "cat" label: 1 } item { name: "dog" label: 2 }
item { name: "1" label: 1 } item { name: "2" label: 2 }
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    (tmp_path / "root").mkdir()
    Image.fromarray(rng.integers(0, 255, (40, 50, 3), dtype=np.uint8)).save("root/a.png")
    Image.fromarray(rng.integers(0, 255, (40, 50, 3), dtype=np.uint8)).save("root/b.jpg")
    Path("root/a.xml").write_text(XML)
    Path("root/a.json").write_text(json.dumps(JSON))
    Path("root/a.txt").write_text(TXT)
    Path("map.prototxt").write_text(MAP)
    for kind in ("xml", "json", "txt"):
        Path(f"{kind}.list").write_text(f"a.png a.{kind}\nb.jpg a.{kind}\n")
    return tmp_path


def convert(*flags: str, name: str = "xml.list") -> int:
    return convert_annoset.main(["--anno_type=detection", *flags, "root/", name, "db"])


def records() -> list[Any]:
    db = open_database("db")
    return [parse_annotated(bytes(db.record(i)), "db") for i in range(len(db))]


@pytest.mark.parametrize("kind", ["xml", "json", "txt"])
def test_kinds_of_annotations(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--label_map_file=map.prototxt"] if kind != "txt" else []
    assert convert(f"--label_type={kind}", *flags, name=f"{kind}.list") == 0
    assert capsys.readouterr().out == "db: 2 images\n"
    first, second = records()
    expected = np.array(ROWS)
    if kind == "txt":
        expected[:, 6] = 0
    assert first.type == 0 and np.allclose(first.objects, expected, atol=1e-6)
    assert np.array_equal(datum_image(first.datum, "db"), read_image("root/a.png"))
    assert np.array_equal(second.objects, first.objects)
    assert open_database("db").key(1) == b"00000001_b.jpg"


@pytest.mark.parametrize(
    "flags, size",
    [
        (["--min_dim=80"], (80, 100)),
        (["--max_dim=25"], (20, 25)),
        (["--min_dim=80", "--max_dim=90"], (72, 90)),
        (["--min_dim=10"], (40, 50)),
        (["--resize_height=30", "--resize_width=20"], (30, 20)),
    ],
)
def test_sizes(flags: list[str], size: tuple[int, int]) -> None:
    """Boxes are in parts of the image, so they stay as they are."""
    assert convert("--label_map_file=map.prototxt", *flags) == 0
    first = records()[0]
    assert np.array_equal(datum_image(first.datum, "db"), resize(read_image("root/a.png"), *size))
    assert np.allclose(first.objects, ROWS, atol=1e-6)


def test_encoded_files_stay_as_they_are() -> None:
    assert convert("--label_map_file=map.prototxt", "--encoded") == 0
    assert [bytes(r.datum.data) for r in records()] == [
        Path("root/a.png").read_bytes(), Path("root/b.jpg").read_bytes()
    ]  # fmt: skip
    assert all(r.datum.encoded for r in records())
    for path in Path("db").iterdir():
        path.unlink()
    Path("db").rmdir()
    assert convert("--label_map_file=map.prototxt", "--encode_type=png") == 0
    assert bytes(records()[1].datum.data).startswith(b"\x89PNG")


def test_classification() -> None:
    Path("labels.list").write_text("a.png 3\nb.jpg 4\n")
    assert convert_annoset.main(["root/", "labels.list", "db"]) == 0
    assert [(r.type, r.datum.label) for r in records()] == [(None, 3), (None, 4)]


@pytest.mark.parametrize(
    "change, message",
    [
        (("root/a.xml", "dog", "cow"), "xml.list:1: root/a.xml:4: the label map has no class"),
        (("root/a.xml", "<xmin>0</xmin>", "<xmin>left</xmin>"), "a.xml:9: xmin must be a number"),
        (("root/a.xml", "<xmin>0</xmin>", ""), "a.xml:9: xmin must be a number, got None"),
        (("root/a.xml", "<xmin>0<", "<xmin>60<"), "a.xml:7: the box .* is turned inside out"),
        (("root/a.xml", "</object>", "</objects>"), "a.xml:6: is not XML: mismatched tag"),
        (("root/a.xml", "<annotation>", "<!DOCTYPE a [<!ENTITY b 'c'>]><annotation>"),
         "a.xml:1: entities are not read"),
        (("xml.list", "a.png a.xml", "a.png"), 'xml.list:1: expected "image annotation"'),
        (("xml.list", "a.png", "c.png"), "xml.list:1: root/c.png: the image cannot be read"),
        (("xml.list", "b.jpg a.xml", "b.jpg z.xml"), "xml.list:2: root/z.xml: the annotations can"),
        (("map.prototxt", "dog", "cat"), 'name "cat" or label 2 occurs twice'),
        (("map.prototxt", "item {", "items {"), "the label map cannot be read: map.prototxt:1"),
    ],
)  # fmt: skip
def test_errors_name_file_and_line(
    change: tuple[str, str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(change[0])
    path.write_text(path.read_text().replace(*change[1:]))
    if "twice" not in message:
        Path("map.prototxt").write_text(Path("map.prototxt").read_text().replace("\nitem", "\n#"))
    assert convert("--label_map_file=map.prototxt", "--check_label") == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and not Path("db").exists()
    assert re.search(message, error), error


@pytest.mark.parametrize(
    "kind, text, message",
    [
        ("json", "{", "a.json:1: is not JSON"),
        ("json", "[]", 'expected an object with "image" and a list "annotation"'),
        ("json", '{"annotation": [{"bbox": [1]}]}', "annotation 0: needs a category_id and a bbox"),
        ("json", '{"annotation": [], "image": {"height": 0, "width": 1}}', "an image of 0 x 1"),
        ("txt", "1 2 3 4\n", 'a.txt:1: expected "label xmin ymin xmax ymax"'),
        ("txt", "\ncat 1 2 3 4\n", "a.txt:2: expected"),
        ("txt", "1 a 2 3 4\n", "a.txt:1: a coordinate must be a number"),
    ],
)
def test_other_kinds_of_errors(
    kind: str, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(f"root/a.{kind}").write_text(text)
    flags = [f"--label_type={kind}", "--label_map_file=map.prototxt"]
    assert convert(*flags, name=f"{kind}.list") == 1
    assert message in capsys.readouterr().err
    assert convert(*flags, "--policy=skip", name=f"{kind}.list") == 1  # none is left
    assert "none of its 2 images can be used" in capsys.readouterr().err


def test_a_label_map_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert convert() == 1
    assert "annotations as xml name classes: give --label_map_file" in capsys.readouterr().err


def test_boxes_that_exceed_the_image_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    Path("root/a.txt").write_text("1 5 5 60 20\n")
    assert convert("--label_type=txt", name="txt.list") == 0
    assert "root/a.txt:1: the box [5.0, 5.0, 60.0, 20.0] exceeds the image" in caplog.text

"""Files that say where the objects of an image are: VOC's XML, SSD's JSON for each image of COCO,
and plain text. All give the rows of `objects`, classes together in the order of their first box."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from xml.parsers import expat

import numpy as np

from .. import schema
from ..errors import DataError, FireError
from ..schema.reader import read_text
from .objects import NO_OBJECTS, Floats

log = logging.getLogger("pycaffe_fire")

Labels = Mapping[str, int]
MOST_DIGITS = 9  # of a label


class Found(NamedTuple):
    """One object: the box in pixels, and where in its file it stands."""

    label: int
    box: tuple[float, float, float, float]
    difficult: bool
    where: str


def read_label_map(path: str, check: bool = False) -> dict[str, int]:
    """Names of classes to labels, from a LabelMap in text form; `check`: none may occur twice."""
    try:
        items = schema.parse_text(read_text(path), schema.LabelMap(), path).item
    except FireError as error:
        raise DataError(f"the label map cannot be read: {error}") from None
    names: dict[str, int] = {}
    for item in items:
        if check and (item.name in names or item.label in names.values()):
            raise DataError(f'{path}: name "{item.name}" or label {item.label} occurs twice')
        names.setdefault(item.name, item.label)
    return names


def _label(name: str, labels: Labels, where: str) -> int:
    if name not in labels:
        raise DataError(f'{where}: the label map has no class "{name}"')
    return labels[name]


def _number(text: Any, where: str, what: str) -> float:
    try:
        value = float(text)
    except (TypeError, ValueError, OverflowError):
        value = float("nan")
    if not np.isfinite(value):
        raise DataError(f"{where}: {what} must be a number, got {text!r}")
    return value


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise DataError(f"{path}: the annotations cannot be read: {error.strerror}") from None


@dataclass
class _Node:
    """An element of an XML file with the line it begins at."""

    tag: str
    line: int
    text: str = ""
    inside: list[_Node] = field(default_factory=list)

    def get(self, *path: str) -> _Node | None:
        """The first element of that path."""
        node: _Node | None = self
        for tag in path:
            node = next((n for n in node.inside if n.tag == tag), None) if node else None
        return node


def _parse_xml(path: str) -> _Node:
    top = _Node("", 0)
    open_nodes = [top]
    parser = expat.ParserCreate()

    def begin(tag: str, _: Any) -> None:
        node = _Node(tag, parser.CurrentLineNumber)
        open_nodes[-1].inside.append(node)
        open_nodes.append(node)

    def add(text: str) -> None:
        open_nodes[-1].text += text

    def refuse(*_: Any) -> None:
        raise DataError(f"{path}:{parser.CurrentLineNumber}: entities are not read; remove them")

    parser.StartElementHandler = begin
    parser.EndElementHandler = lambda _: open_nodes.pop()
    parser.CharacterDataHandler = add
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(_read(path), True)
    except expat.ExpatError as error:
        raise DataError(f"{path}:{error.lineno}: is not XML: {error}") from None
    return top


def read_xml(path: str, labels: Labels, height: int, width: int) -> Floats:
    """PASCAL VOC's annotations of an image of this size."""
    root = _parse_xml(path).get("annotation")
    if root is None:
        raise DataError(f'{path}: has no element "annotation"')
    sides = [root.get("size", name) for name in ("height", "width")]
    said = [int(_number(n.text, f"{path}:{n.line}", n.tag)) for n in sides if n]
    return _rows(_xml_objects(path, root, labels), path, said, height, width)


def _xml_objects(path: str, root: _Node, labels: Labels) -> Iterator[Found]:
    for node in (n for n in root.inside if n.tag == "object"):
        where = f"{path}:{node.line}"
        name, box, hard = node.get("name"), node.get("bndbox"), node.get("difficult")
        if name is None or box is None:
            raise DataError(f"{where}: an object needs a name and a bndbox")
        corners = []
        for side in ("xmin", "ymin", "xmax", "ymax"):
            found = box.get(side)
            at = f"{path}:{(found or box).line}"
            corners.append(_number(found.text if found else None, at, side))
        xmin, ymin, xmax, ymax = corners
        label = _label(name.text.strip(), labels, f"{path}:{name.line}")
        difficult = hard is not None and hard.text.strip() == "1"
        yield Found(label, (xmin, ymin, xmax, ymax), difficult, where)


def read_json(path: str, labels: Labels, height: int, width: int) -> Floats:
    """SSD's file for one image of COCO: image (height, width) and annotation (bbox as x, y, width
    and height, category_id, iscrowd)."""
    try:
        content = json.loads(_read(path))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{error.lineno}: is not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:  # other encodings, integers without end
        raise DataError(f"{path}: is not JSON: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("annotation"), list):
        raise DataError(f'{path}: expected an object with "image" and a list "annotation"')
    image = content.get("image")
    image = image if isinstance(image, dict) else {}
    said = [int(_number(image[n], path, n)) for n in ("height", "width") if n in image]
    return _rows(_json_objects(path, content["annotation"], labels), path, said, height, width)


def _json_objects(path: str, notes: list[Any], labels: Labels) -> Iterator[Found]:
    for number, note in enumerate(notes):
        where = f"{path}, annotation {number}"
        box = note.get("bbox") if isinstance(note, dict) else None
        if not isinstance(box, list) or len(box) != 4 or "category_id" not in note:
            raise DataError(f"{where}: needs a category_id and a bbox of x, y, width and height")
        x, y, wide, high = (_number(value, where, "bbox") for value in box)
        label = _label(str(note["category_id"]), labels, where)
        yield Found(label, (x, y, x + wide, y + high), bool(note.get("iscrowd", 0)), where)


def read_txt(path: str, labels: Labels, height: int, width: int) -> Floats:
    """Lines "label xmin ymin xmax ymax"; the label is a number, boxes are in pixels."""
    lines = _read(path).decode("utf-8", "replace").splitlines()
    return _rows(_txt_objects(path, lines), path, [], height, width)


def _txt_objects(path: str, lines: list[str]) -> Iterator[Found]:
    for number, line in enumerate(lines, 1):
        words, where = line.split(), f"{path}:{number}"
        if not words:
            continue
        if len(words) != 5 or not words[0].isdecimal() or len(words[0]) > MOST_DIGITS:
            raise DataError(f'{where}: expected "label xmin ymin xmax ymax", got {line[:200]!r}')
        xmin, ymin, xmax, ymax = (_number(word, where, "a coordinate") for word in words[1:])
        yield Found(int(words[0]), (xmin, ymin, xmax, ymax), False, where)


READERS: dict[str, Callable[[str, Labels, int, int], Floats]] = {
    "xml": read_xml,
    "json": read_json,
    "txt": read_txt,
}


def _rows(found: Iterable[Found], path: str, said: list[int], height: int, width: int) -> Floats:
    """Objects with boxes in parts of the image, by the size that the file says, if it does."""
    if len(said) == 2:
        if said != [height, width]:
            log.warning("%s: says an image of %d x %d, it has %d x %d", path, *said, height, width)
        height, width = said
    if height < 1 or width < 1:
        raise DataError(f"{path}: says an image of {height} x {width}")
    sides = np.array([width, height] * 2, np.float32)
    classes: dict[int, list[Any]] = {}
    for one in found:
        xmin, ymin, xmax, ymax = one.box
        if xmin > xmax or ymin > ymax:
            raise DataError(f"{one.where}: the box {list(one.box)} is turned inside out")
        if xmin < 0 or ymin < 0 or xmax > width or ymax > height:
            log.warning("%s: the box %s exceeds the image", one.where, list(one.box))
        rows = classes.setdefault(one.label, [])
        box = np.array(one.box, np.float32) / sides
        rows.append([one.label, len(rows), *box, one.difficult])
    rows = [row for group in classes.values() for row in group]
    return np.array(rows, np.float32) if rows else NO_OBJECTS

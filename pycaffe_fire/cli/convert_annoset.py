"""convert_annoset: images and the boxes of their objects to a database, as SSD's tool."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields

from ..data.annotated_set import CLASSIFICATION, DETECTION, AnnotatedSet
from ..data.annotation_files import READERS
from .common import whole
from .convert_imageset import add_image_set_flags, report
from .gflags import FlagParser, run_tool

COMMANDS = """
  convert_annoset [FLAGS] ROOTFOLDER/ LISTFILE DB_NAME
  convert_annoset --anno_type=detection --label_map_file=labelmap_voc.prototxt --encoded \\
      VOCdevkit/ trainval.txt trainval_lmdb
  convert_annoset --anno_type=detection --label_type=txt images/ list.txt lmdb

  LISTFILE has lines "image annotation" (detection) or "image label" (classification);
  ROOTFOLDER/ is put in front of both paths. Annotations are VOC's XML, a JSON file for each image
  (image, annotation with bbox and category_id), or lines "label xmin ymin xmax ymax".
"""


def _parser() -> FlagParser:
    parser = FlagParser("convert_annoset", COMMANDS)
    add_image_set_flags(parser, 'lines "image annotation"')
    flag = parser.add_argument
    flag(
        "--anno_type", choices=(CLASSIFICATION, DETECTION), default=CLASSIFICATION,
        help=f"default: {CLASSIFICATION}",
    )  # fmt: skip
    flag("--label_type", choices=list(READERS), default="xml", help="annotations (default: xml)")
    flag("--label_map_file", default="", metavar="FILE", help="a LabelMap: names and labels")
    parser.boolean("check_label", "make sure that no name or label occurs twice in it")
    for which, what in (("min", "enlarge images whose shorter side is less"),
                        ("max", "shrink images whose longer side is more")):  # fmt: skip
        flag(f"--{which}_dim", type=whole, default=0, metavar="N", help=what)
    return parser


def _convert(options: argparse.Namespace) -> None:
    given = {field.name: getattr(options, field.name) for field in fields(AnnotatedSet)}
    report(options.database, AnnotatedSet(**given))


def main(arguments: Sequence[str] | None = None) -> int:
    return run_tool(_parser(), _convert, arguments)


if __name__ == "__main__":
    sys.exit(main())

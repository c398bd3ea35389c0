"""fire_convert: Caffe models out to other formats and in from them, each number checked."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ..convert.files import SUFFIXES, Settings, check, convert
from ..errors import ConvertError
from .common import Parser
from .gflags import run_tool

COMMANDS = """
  fire_convert deploy.prototxt weights.caffemodel model.onnx     suffixes say what becomes what
  fire_convert train_val.prototxt weights.caffemodel model.onnx --fold-bn --report page.html
  fire_convert model.onnx out.prototxt out.caffemodel --dialect ssd
  fire_convert train_val.prototxt weights.caffemodel out.prototxt out.caffemodel --to bvlc
  fire_convert deploy.prototxt weights.caffemodel weights.safetensors
  fire_convert weights.safetensors out.caffemodel --into deploy.prototxt
  fire_convert --check deploy.prototxt weights.caffemodel model.onnx
"""


def _parser() -> Parser:
    parser = Parser("fire_convert", COMMANDS)
    flag = parser.add_argument
    flag("files", nargs="+", metavar="FILE", help=f"sources, then targets: {', '.join(SUFFIXES)}")
    flag("--check", action="store_true", help="compare files that are there; write nothing")
    flag("--no-check", action="store_true", help="write without running the result")
    flag(
        "--check-with", action="append", choices=("onnxruntime", "opencv"), default=[],
        help="run the result in this library as well (default: onnxruntime)",
    )  # fmt: skip
    flag("--report", metavar="PAGE.html", help="write a page: table, drawn net, what was changed")
    flag("--opset", type=int, default=17, help="of ONNX, 13 to 21 (default: 17)")
    flag(
        "--detection", choices=("nms", "opencv"), default="nms",
        help="DetectionOutput as ONNX's own ops, or as a node that OpenCV knows",
    )  # fmt: skip
    flag(
        "--embed-preprocessing", action="store_true",
        help="let the model take pixels: channel order, mean and scale become part of it",
    )  # fmt: skip
    flag("--mean", default="", help="104,117,123 or mean.binaryproto (default: the data layer's)")
    flag("--scale", type=float, help="what pixels less the mean are multiplied by")
    flag(
        "--channel-order", choices=("BGR", "RGB"), default="BGR",
        help="of the pixels that come in (default: BGR, as Caffe's)",
    )  # fmt: skip
    flag("--labels", default="", metavar="FILE", help="a label per line, for the metadata")
    flag(
        "--input-shape", action="append", default=[], metavar="BLOB=1,3,224,224",
        help="the shape of an input, where the model does not tell it",
    )  # fmt: skip
    flag("--fold-bn", action="store_true", help="fold BatchNorm and Scale where that is exact")
    flag("--float16", action="store_true", help="store weights in 16 bits")
    flag("--outputs", default="", metavar="A,B", help="keep only what these blobs need")
    flag("--rename", action="append", default=[], metavar="OLD=NEW", help="a layer or blob")
    flag(
        "--upgrade", action="store_true",
        help="old forms of prototxts in the newest (always done; --to does more)",
    )  # fmt: skip
    flag("--to", default="", choices=("", "bvlc"), help="only layers and fields of Caffe 1.0")
    flag(
        "--dialect", default="bvlc", choices=("bvlc", "ssd", "nnie"),
        help="which layers the Caffe knows that a model from ONNX is for (default: bvlc)",
    )  # fmt: skip
    flag("--into", default="", metavar="PROTOTXT", help="the net that weights are for")
    return parser


def _pairs(given: Sequence[str], what: str) -> dict[str, str]:
    found = {}
    for each in given:
        name, sign, value = each.partition("=")
        if not (name and sign and value):
            raise ConvertError(f'{what} takes NAME=VALUE, got "{each}"')
        found[name] = value
    return found


def _shape(text: str) -> list[int]:
    sizes = text.split(",")
    if not all(size.isdecimal() and int(size) > 0 for size in sizes):
        raise ConvertError(f'--input-shape takes whole numbers with commas, got "{text}"')
    return [int(size) for size in sizes]


def _settings(options: argparse.Namespace) -> Settings:
    checks = list(dict.fromkeys(["onnxruntime", *options.check_with]))
    shapes = _pairs(options.input_shape, "--input-shape")
    return Settings(
        opset=options.opset,
        detection=options.detection,
        embed_preprocessing=options.embed_preprocessing,
        mean=options.mean,
        scale=options.scale,
        channel_order=options.channel_order,
        labels=options.labels,
        input_shapes={name: _shape(value) for name, value in shapes.items()},
        outputs=[name for name in options.outputs.split(",") if name],
        rename=_pairs(options.rename, "--rename"),
        fold_bn=options.fold_bn,
        float16=options.float16,
        to=options.to,
        dialect=options.dialect,
        into=options.into,
        check_with=() if options.no_check else checks,
    )


def _work(options: argparse.Namespace) -> None:
    from ..convert.checker import table

    settings = _settings(options)
    if options.check:
        found = check(*options.files, settings=settings)
        print("\n".join(table(found, every=True)))
        found.refuse(options.files[-1])
        print(f"largest relative difference: {found.worst:.1e}")
        return
    made = convert(*options.files, settings=settings)
    for note in made.notes:
        print(note)
    if made.check is not None:
        print("\n".join(table(made.check, every=True)))
        print(f"largest relative difference: {made.check.worst:.1e}")
    if options.report:
        from ..convert.report import write_page
        from ..pycaffe.draw import svg

        write_page(options.report, options.files[-1], made, svg(made.param, shapes=made.shapes))
        print(f"{options.report}: the report")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one conversion; the exit status is 0, or 1 after one sentence on what went wrong."""
    return run_tool(_parser(), _work, arguments)


if __name__ == "__main__":
    sys.exit(main())

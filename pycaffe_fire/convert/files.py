"""Conversions by the names of files: their suffixes say what comes in and what goes out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import ConvertError
from .model import Model, PathLike, read_model, write_model
from .preprocessing import Preprocessing, of_data_layers
from .prune import pruned, renamed

if TYPE_CHECKING:
    from .caffe_to_onnx import Conversion
    from .checker import Result

PROTOTXT, ONNX = "prototxt", "ONNX"
CAFFE, NAMED = "Caffe weights", "weights"
SUFFIXES = {
    ".prototxt": PROTOTXT, ".pbtxt": PROTOTXT, ".txt": PROTOTXT, ".onnx": ONNX,
    ".caffemodel": CAFFE, ".h5": CAFFE, ".safetensors": NAMED, ".npz": NAMED, ".pt": NAMED,
    ".pth": NAMED,
}  # fmt: skip
USES = "deploy.prototxt weights.caffemodel model.onnx"


@dataclass(frozen=True)
class Settings:
    """What a conversion may be told; most concern only some of them."""

    opset: int = 17
    detection: str = "nms"
    embed_preprocessing: bool = False
    mean: str = ""  # numbers with commas, or a mean file
    scale: float | None = None
    channel_order: str = "BGR"
    labels: str = ""  # a file of a label per line
    input_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    outputs: Sequence[str] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    fold_bn: bool = False
    float16: bool = False
    to: str = ""  # "bvlc": plain layers alone
    dialect: str = "bvlc"
    into: str = ""  # the prototxt that weights are for
    check_with: Sequence[str] = ("onnxruntime",)


def kind_of(path: PathLike) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise ConvertError(
            f'{os.fspath(path)}: "{suffix}" is no known kind of file; known: {", ".join(SUFFIXES)}'
        )
    return SUFFIXES[suffix]


def convert(*files: PathLike, settings: Settings | None = None) -> Conversion:
    """Read the first files and write the last ones; nothing is written if anything fails."""
    from .caffe_to_onnx import Conversion, convert_to_onnx

    given = settings or Settings()
    kinds = [kind_of(path) for path in files]
    if kinds == [PROTOTXT, CAFFE, ONNX]:
        from .to_onnx.export import Options

        model = _model(files[0], files[1], given)
        options = Options(
            given.opset, given.detection, given.embed_preprocessing, given.float16
        )  # fmt: skip
        return convert_to_onnx(
            model, files[2], options, _preprocessing(model, given),
            input_shapes=given.input_shapes, outputs=given.outputs, fold_bn=given.fold_bn,
            check_with=given.check_with,
        )  # fmt: skip
    if kinds == [ONNX, PROTOTXT, CAFFE]:
        from .onnx_to_caffe import convert_to_caffe

        return convert_to_caffe(
            files[0], files[1], files[2], given.dialect, given.input_shapes, given.fold_bn,
            check=bool(given.check_with),
        )  # fmt: skip
    if kinds == [PROTOTXT, CAFFE, PROTOTXT, CAFFE]:
        model = _within(_model(files[0], files[1], given), given)
        write_model(model, files[2], files[3], given.float16)
        return Conversion(model.param, model.notes)
    if kinds in ([PROTOTXT, CAFFE, NAMED], [PROTOTXT, CAFFE, CAFFE]):
        model = _within(_model(files[0], files[1], given), given)
        _write_weights(model, files[2], given)
        return Conversion(model.param, model.notes)
    if kinds == [NAMED, CAFFE]:
        return _into(files[0], files[1], given)
    raise ConvertError(
        f"cannot tell what to make of {', '.join(kinds) or 'nothing'}; give for example {USES}"
    )


def check(*files: PathLike, settings: Settings | None = None) -> Result:
    """Compare a prototxt with weights to an ONNX file of the same net."""
    from .caffe_to_onnx import check_pair

    given = settings or Settings()
    if [kind_of(path) for path in files] != [PROTOTXT, CAFFE, ONNX]:
        raise ConvertError(f"a check takes three files: {USES}")
    return check_pair(
        _model(files[0], files[1], given), files[2], input_shapes=given.input_shapes,
        check_with=given.check_with,
    )  # fmt: skip


def _model(prototxt: PathLike, weights: PathLike, given: Settings) -> Model:
    model = read_model(prototxt, weights)
    return renamed(model, given.rename) if given.rename else model


def _within(model: Model, given: Settings) -> Model:
    """What is asked of a model that stays Caffe's."""
    from .fold import fold_batch_norm
    from .unfork import plain_enough, to_bvlc

    if given.to and given.to != "bvlc":
        raise ConvertError(f'--to knows bvlc alone, got "{given.to}"')
    if given.to:
        model = to_bvlc(model)
    if given.outputs:
        model = pruned(model, given.outputs)
    return fold_batch_norm(plain_enough(model)) if given.fold_bn else model


def _write_weights(model: Model, path: PathLike, given: Settings) -> None:
    from .. import schema
    from . import weights

    if kind_of(path) == CAFFE:
        schema.write_weights(path, model.param, model.layer_weights())
    else:
        weights.write(path, weights.to_named(model), given.float16)


def _into(source: PathLike, target: PathLike, given: Settings) -> Conversion:
    from .. import schema
    from . import weights
    from .caffe_to_onnx import Conversion

    if not given.into:
        raise ConvertError(
            f"{os.fspath(source)} has weights without a net; give one: --into deploy.prototxt"
        )
    model = weights.from_named(given.into, source)
    schema.write_weights(target, model.param, model.layer_weights())
    return Conversion(model.param, model.notes)


def _preprocessing(model: Model, given: Settings) -> Preprocessing:
    """What the prototxt says, less what the settings say themselves."""
    found = of_data_layers(model)
    mean = _mean(given.mean) if given.mean else found.mean
    labels: tuple[str, ...] = ()
    if given.labels:
        try:
            labels = tuple(Path(given.labels).read_text("utf-8").splitlines())
        except (OSError, UnicodeDecodeError) as problem:
            raise ConvertError(f"{given.labels}: cannot be read as text: {problem}") from None
    scale = found.scale if given.scale is None else given.scale
    return Preprocessing(mean, scale, given.channel_order, labels)


def _mean(text: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Numbers with commas between them, or the array in a mean file."""
    from .. import schema

    try:
        return np.array([float(part) for part in text.split(",")], np.float32)
    except ValueError:
        return np.asarray(schema.read_blob(text), np.float32)

"""From a Caffe model to a checked ONNX file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..errors import ConvertError
from . import onnx_file
from .checker import Checker, Result, by_name
from .fold import fold_batch_norm
from .inference import Shapes, build_small, for_inference
from .model import Model, PathLike
from .preprocessing import Preprocessing, of_data_layers
from .prune import pruned
from .to_onnx.detection import OPENCV
from .to_onnx.export import Options, export
from .unfork import plain_enough

ONNXRUNTIME, CV = "onnxruntime", "opencv"


@dataclass
class Conversion:
    """What was done: lines about it, the check's result, and the net as it was converted."""

    param: Any
    notes: list[str]
    check: Result | None = None
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)


def convert_to_onnx(
    model: Model,
    path: PathLike,
    options: Options | None = None,
    preprocessing: Preprocessing | None = None,
    *,
    input_shapes: Shapes | None = None,
    outputs: Iterable[str] = (),
    fold_bn: bool = False,
    check_with: Iterable[str] = (ONNXRUNTIME,),
) -> Conversion:
    """Write a model's inference as an ONNX file, which is kept only if the checks agree.

    The model's weights are taken over: afterwards it has none.
    """
    options = options or Options()
    if preprocessing is None:
        preprocessing = of_data_layers(model)
    used = for_inference(plain_enough(model), input_shapes)
    if outputs:
        used = pruned(used, outputs)
    net = build_small(used)
    source, target = used, net
    if fold_bn:
        source = fold_batch_norm(used)
        target = build_small(source)
    for each in (model, used, source):  # the nets have them now
        each.weights.clear()
    made = export(target, options, preprocessing)
    notes = [*source.notes, *(f"the batch size is fixed: {why}" for why in made.fixed_batch)]
    shapes = {name: tuple(blob.shape) for name, blob in target.blobs.items()}
    embedded = preprocessing if options.embed_preprocessing else None
    tops = made.tops if target is net else by_name(net, made.model)
    del target
    with onnx_file.writing(path, made.model, made.arrays) as temporary:
        result = None
        kinds = list(check_with)
        if kinds:
            inline = not onnx_file.is_large(made.arrays)
            checker = Checker(net, made.model, made.arrays, tops, embedded)
            result = _checked(checker, kinds, str(temporary), inline, options)
            result.refuse(f"{path} is not kept")
    return Conversion(source.param, notes, result, shapes)


def _checked(
    checker: Checker, kinds: list[str], path: str, inline: bool, options: Options
) -> Result:
    for kind in kinds:
        if kind == CV:
            if not inline:
                raise ConvertError("a model above 2 GB cannot be checked with OpenCV")
            checker.run_opencv(path)
        else:
            known = checker.without("DetectionOutput") if options.detection == OPENCV else checker
            known.run_onnxruntime(path if inline and known is checker else None)
    return checker.result


def check_pair(
    model: Model,
    path: PathLike,
    *,
    input_shapes: Shapes | None = None,
    check_with: Iterable[str] = (ONNXRUNTIME,),
) -> Result:
    """Compare a Caffe model with an ONNX file that is there already, by the blobs' names."""
    loaded, arrays = onnx_file.load(path)
    net = build_small(for_inference(plain_enough(model), input_shapes))
    checker = Checker(net, loaded, arrays, by_name(net, loaded))
    for kind in check_with:
        if kind == CV:
            checker.run_opencv(str(path))
        else:
            checker.run_onnxruntime(None)
    return checker.result

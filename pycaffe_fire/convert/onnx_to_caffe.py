"""From an ONNX file to a checked Caffe model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ConvertError
from .caffe_to_onnx import Conversion
from .checker import Checker, by_name
from .dialects import Dialect, dialect
from .fold import fold_batch_norm
from .from_onnx import OPS
from .from_onnx.source import DETECTIONS, Source
from .from_onnx.target import CannotError, Target
from .model import Model, PathLike, build, write_model


def convert_to_caffe(
    path: PathLike,
    prototxt: PathLike,
    weights: PathLike,
    name: str = "bvlc",
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    fold_bn: bool = False,
    check: bool = True,
) -> Conversion:
    """Write an ONNX model as a prototxt and a .caffemodel, which are kept only if the check agrees;
    `name` is a dialect: which layers the Caffe knows that they are for."""
    source = Source(path, input_shapes or {})
    model = read_graph(source, dialect(name))
    if fold_bn:
        model = fold_batch_norm(model)
    net = build(model, separate=True)
    shapes = {blob: tuple(each.shape) for blob, each in net.blobs.items()}
    result = None
    if check:
        checker = Checker(net, source.model, source.arrays, by_name(net, source.model))
        result = checker.without(DETECTIONS).run_onnxruntime(None)
        result.refuse(f"{prototxt} is not kept")
    write_model(model, prototxt, weights)
    return Conversion(model.param, model.notes, result, shapes)


def read_graph(source: Source, known: Dialect) -> Model:
    """The graph as a Caffe model; all nodes that cannot be expressed are named at once."""
    strange = [node for node in source.live() if node.op not in OPS]
    problems = [f'"{node.name}" ({node.op}): no layer does this' for node in strange]
    if not strange:
        source.evaluate()
        problems, target = _converted(source, known)
    if problems:
        raise ConvertError(
            "\n  ".join([f"{source.path}: {len(problems)} node(s) cannot be expressed in "
                         f'"{known.name}":', *problems])
        )  # fmt: skip
    return Model(target.param, target.weights, "", str(source.path))


def _converted(source: Source, known: Dialect) -> tuple[list[str], Target]:
    target = Target(source, known)
    for name, shape in source.inputs.items():
        layer = target.layer("Input", name, [], [name])
        layer.input_param.shape.add(dim=shape)
        target.blobs[name] = name
    problems = []
    for node in source.live():
        convert: Any = OPS[node.op]
        try:
            convert(target, node)
        except CannotError as why:
            problems.append(f'"{node.name}" ({node.op}): {why}')
            target.blobs.update((name, name) for name in node.outputs)
    return problems, target

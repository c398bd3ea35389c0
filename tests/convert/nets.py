"""Nets for the tests of conversions, and running what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pycaffe_fire import schema
from pycaffe_fire.backend import cpu_backend
from pycaffe_fire.convert.checker import Checker, Floats
from pycaffe_fire.convert.model import Model
from pycaffe_fire.convert.to_onnx.export import Exported, Options, export
from pycaffe_fire.layers import Context
from pycaffe_fire.net.net import Net
from pycaffe_fire.net.weights import layer_weights
from tests.layers.case import Array, Case, Trial, filled

MODELS = Path(__file__).parents[2] / "models"


def parsed(text: str) -> Any:
    return schema.parse_text(text, schema.NetParameter())


def model_of(text: str, seed: int = 0, fill: Mapping[str, list[Array]] | None = None) -> Model:
    """A model with random weights; variances are positive."""
    param = parsed(text)
    param.state.phase = schema.TEST
    net = Net(param, cpu_backend(1), Context(seed=seed))
    rng = np.random.default_rng(seed)
    weights = {}
    for layer in layer_weights(net):
        if not layer.blobs:
            continue
        made = [np.float32(rng.normal(0, 0.5, blob.shape)) for blob in layer.blobs]
        if layer.type == "BatchNorm":
            made[1] = np.float32(rng.uniform(2, 6, made[1].shape))
            made[2] = np.full(made[2].shape, 4, np.float32)
        weights[layer.name] = made
    weights.update(fill or {})
    return Model(parsed(text), weights, "", "")


def save(model: Model, folder: Path, name: str = "net") -> tuple[Path, Path]:
    """The model as two files."""
    prototxt, weights = folder / f"{name}.prototxt", folder / f"{name}.caffemodel"
    schema.write_text(model.param, prototxt)
    schema.write_weights(weights, model.param, model.layer_weights())
    return prototxt, weights


class CaseChecker(Checker):
    """A checker that feeds a row of the layer table its own kind of values."""

    case: Case

    def _fed(self, number: int) -> dict[str, Floats]:
        shapes = tuple(tuple(self.net.blobs[name].shape) for name in self.net.inputs)
        values = replace(self.case, shapes=shapes).values(number)
        if self.case.type == "BatchReindex":
            values[1] %= shapes[0][0]
        feeds = {f"in{i}": np.float32(value) for i, value in enumerate(values)}
        for name, value in feeds.items():
            self.net.blobs[name].data[...] = value
        self.result.batches.append(shapes[0][0] if shapes else 0)
        return feeds


def layer_net(case: Case) -> Net:
    """The layer of a row in a net of its own, with the row's weights, as it is used."""
    trial = Trial.__new__(Trial)
    trial.case = case
    trial.feeds = [f"in{i}" for i in range(len(case.shapes))]
    trial.tops = [f"out{i}" for i in range(case.tops)]
    param = parsed(trial._text())
    param.state.phase, param.debug_info, param.force_backward = schema.TEST, True, False
    net = Net(param, cpu_backend(1), Context())
    net.debug_info = False
    rng = np.random.default_rng(99)
    for i, blob in enumerate(net.params.get("layer", [])):
        fill = case.weight_fill[i if len(case.weight_fill) > 1 else 0]
        blob.data[...] = np.float32(filled(fill, rng, blob.shape, ()))
    return net


def exported(net: Net, **options: Any) -> Exported:
    return export(net, Options(**options))


def run(made: Exported, feeds: Mapping[str, Array], name: str) -> Array:
    """One tensor of an exported model in onnxruntime."""
    import onnx
    import onnxruntime

    model = onnx.ModelProto()
    model.CopyFrom(made.model)
    for key, array in made.arrays.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, key))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    wanted = {info.name for info in session.get_inputs()}
    given = {key: np.float32(value) for key, value in feeds.items() if key in wanted}
    found: Array = session.run([name], given)[0]
    return found

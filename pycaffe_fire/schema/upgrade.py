"""Brings old nets and solvers to the newest form, the way Caffe's upgrade tools do."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ..errors import PrototxtError
from .dialects import translate
from .messages import ENUMS, fields_of
from .proto import LayerParameter, NetParameter, SolverParameter, V1LayerParameter
from .upgrade_v0 import upgrade_v0_net

_log = logging.getLogger(__name__)

_TYPE_NAMES = {
    "NONE": "",
    "ABSVAL": "AbsVal",
    "ACCURACY": "Accuracy",
    "ARGMAX": "ArgMax",
    "BNLL": "BNLL",
    "CONCAT": "Concat",
    "CONTRASTIVE_LOSS": "ContrastiveLoss",
    "CONVOLUTION": "Convolution",
    "DATA": "Data",
    "DECONVOLUTION": "Deconvolution",
    "DROPOUT": "Dropout",
    "DUMMY_DATA": "DummyData",
    "EUCLIDEAN_LOSS": "EuclideanLoss",
    "ELTWISE": "Eltwise",
    "EXP": "Exp",
    "FLATTEN": "Flatten",
    "HDF5_DATA": "HDF5Data",
    "HDF5_OUTPUT": "HDF5Output",
    "HINGE_LOSS": "HingeLoss",
    "IM2COL": "Im2col",
    "IMAGE_DATA": "ImageData",
    "INFOGAIN_LOSS": "InfogainLoss",
    "INNER_PRODUCT": "InnerProduct",
    "LRN": "LRN",
    "MEMORY_DATA": "MemoryData",
    "MULTINOMIAL_LOGISTIC_LOSS": "MultinomialLogisticLoss",
    "MVN": "MVN",
    "POOLING": "Pooling",
    "POWER": "Power",
    "RELU": "ReLU",
    "SIGMOID": "Sigmoid",
    "SIGMOID_CROSS_ENTROPY_LOSS": "SigmoidCrossEntropyLoss",
    "SILENCE": "Silence",
    "SLICE": "Slice",
    "SOFTMAX": "Softmax",
    "SOFTMAX_LOSS": "SoftmaxWithLoss",
    "SPLIT": "Split",
    "TANH": "TanH",
    "THRESHOLD": "Threshold",
    "WINDOW_DATA": "WindowData",
    "CROP": "Crop",
}
# V1LayerParameter.LayerType numbers to type strings.
V1_TYPES = {
    number: _TYPE_NAMES[name] for name, number in ENUMS["caffe.V1LayerParameter.LayerType"].items()
}
_SOLVER_TYPES = {
    "SGD": "SGD",
    "NESTEROV": "Nesterov",
    "ADAGRAD": "AdaGrad",
    "RMSPROP": "RMSProp",
    "ADADELTA": "AdaDelta",
    "ADAM": "Adam",
    "SAG": "SAG",
}
_DATA_PARAMS = {
    "Data": "data_param",
    "DenseImageData": "dense_image_data_param",
    "ImageData": "image_data_param",
    "ImageLabelmapData": "image_data_param",
    "ImageSegData": "image_data_param",
    "WindowData": "window_data_param",
}
_TRANSFORMS = ("scale", "mean_file", "crop_size", "mirror")
# V1 fields that become something else; all others have a namesake in LayerParameter.
_V1_SPECIAL = ("type", "layer", "param", "blob_share_mode", "blobs_lr", "weight_decay")


def upgrade_net(net: NetParameter, where: str = "<net>") -> NetParameter:
    """The net in the newest form: V0 and V1 layers, transforms, inputs, batch-norm parameters, and
    what other Caffes write otherwise."""
    if any(layer.HasField("layer") for layer in net.layers):
        net = upgrade_v0_net(net, where)
    for old in net.layers:
        _move_transforms(old)
    if net.layers:
        net = _upgrade_v1_net(net, where)
    if net.input:
        _upgrade_input(net, where)
    for layer in net.layer:
        if layer.type == "BatchNorm" and len(layer.param) == 3:
            _freeze(layer)
        _warn_of_ignored_transforms(layer, where)
    translate(net, where)
    return net


def upgrade_solver(solver: SolverParameter, where: str = "<solver>") -> SolverParameter:
    """The solver with its type as a string and any net inside it upgraded."""
    if solver.HasField("solver_type"):
        if solver.HasField("type"):
            raise PrototxtError(
                f"{where}: gives both the old solver_type and the new type; remove solver_type"
            )
        names = {v: k for k, v in ENUMS["caffe.SolverParameter.SolverType"].items()}
        solver.type = _SOLVER_TYPES[names[solver.solver_type]]
        solver.ClearField("solver_type")
    for name in ("net_param", "train_net_param"):
        if solver.HasField(name):
            getattr(solver, name).CopyFrom(upgrade_net(getattr(solver, name), where))
    for net in solver.test_net_param:
        net.CopyFrom(upgrade_net(net, where))
    return solver


def _move_transforms(layer: V1LayerParameter) -> None:
    """Old data layers carried scale, mean, crop and mirror in their own parameters."""
    holder = _DATA_PARAMS.get(V1_TYPES[layer.type])
    if holder is None:
        return
    param = getattr(layer, holder)
    for name in _TRANSFORMS:
        if param.HasField(name):
            setattr(layer.transform_param, name, getattr(param, name))
            param.ClearField(name)


def _warn_of_ignored_transforms(layer: LayerParameter, where: str) -> None:
    """In the newest form Caffe does not look at them, so neither do we, but we say so."""
    holder = _DATA_PARAMS.get(layer.type)
    if holder is None:
        return
    found = ", ".join(name for name in _TRANSFORMS if getattr(layer, holder).HasField(name))
    if found:
        _log.warning(
            '%s: layer "%s": %s in %s has no effect, as in Caffe; move it to transform_param',
            *(where, layer.name, found, holder),
        )


def _upgrade_v1_net(old: NetParameter, where: str) -> NetParameter:
    if old.layer:
        _log.warning('%s: has both "layers" and "layer"; as in Caffe, "layer" is ignored', where)
    net = NetParameter()
    net.CopyFrom(old)
    net.ClearField("layers")
    net.ClearField("layer")
    net.layer.extend(_upgrade_v1_layer(layer) for layer in old.layers)
    return net


def _upgrade_v1_layer(old: V1LayerParameter) -> LayerParameter:
    new = LayerParameter()
    for field in fields_of(old).values():
        if field.name in _V1_SPECIAL:
            continue
        value = getattr(old, field.name)
        if field.repeated:
            getattr(new, field.name).extend(value)
        elif old.HasField(field.name):
            if field.kind == "message":
                getattr(new, field.name).CopyFrom(value)
            else:
                setattr(new, field.name, value)
    if old.HasField("type"):
        new.type = V1_TYPES[old.type]
    lists: dict[str, Iterable[str | float]] = {
        "name": old.param,
        "share_mode": old.blob_share_mode,
        "lr_mult": old.blobs_lr,
        "decay_mult": old.weight_decay,
    }
    for name, values in lists.items():
        for i, value in enumerate(values):
            if i == len(new.param):
                new.param.add()
            setattr(new.param[i], name, value)
    return new


def _upgrade_input(net: NetParameter, where: str) -> None:
    """One Input layer in front stands for all `input` fields; without shapes they just go."""
    count = len(net.input)
    shapes, dims = len(net.input_shape), len(net.input_dim)
    if shapes and shapes != count or not shapes and dims and dims != 4 * count:
        raise PrototxtError(
            f"{where}: {count} input fields need {count} input_shape blocks or {4 * count} "
            f"input_dim numbers, got {shapes} and {dims}"
        )
    if shapes or dims:
        first = LayerParameter(name="input", type="Input", top=net.input)
        for i in range(count):
            shape = net.input_shape[i].dim if shapes else net.input_dim[4 * i : 4 * i + 4]
            first.input_param.shape.add(dim=shape)
        rest = [LayerParameter.FromString(layer.SerializeToString()) for layer in net.layer]
        net.ClearField("layer")
        net.layer.extend([first, *rest])
    for name in ("input", "input_shape", "input_dim"):
        net.ClearField(name)


def _freeze(layer: LayerParameter) -> None:
    """Batch norm's mean, variance and count are statistics: the solver must leave them alone."""
    for spec in layer.param:
        spec.lr_mult = 0
        spec.decay_mult = 0

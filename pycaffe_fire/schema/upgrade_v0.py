"""Turns nets of 2013 (`layers { layer { type: "conv" } }`) into those of 2014.

Padding was a layer of its own then; it becomes the `pad` of the layer that reads it.
"""

from __future__ import annotations

import logging

from ..errors import PrototxtError
from ..registry import did_you_mean
from .messages import ENUMS, fields_of
from .proto import NetParameter, V0LayerParameter, V1LayerParameter

_log = logging.getLogger(__name__)

# V0 type string to V1 enum name and the sub-message that holds its options.
V0_TYPES = {
    "accuracy": ("ACCURACY", ""),
    "bnll": ("BNLL", ""),
    "concat": ("CONCAT", "concat_param"),
    "conv": ("CONVOLUTION", "convolution_param"),
    "data": ("DATA", "data_param"),
    "dropout": ("DROPOUT", "dropout_param"),
    "euclidean_loss": ("EUCLIDEAN_LOSS", ""),
    "flatten": ("FLATTEN", ""),
    "hdf5_data": ("HDF5_DATA", "hdf5_data_param"),
    "hdf5_output": ("HDF5_OUTPUT", "hdf5_output_param"),
    "im2col": ("IM2COL", ""),
    "images": ("IMAGE_DATA", "image_data_param"),
    "infogain_loss": ("INFOGAIN_LOSS", "infogain_loss_param"),
    "innerproduct": ("INNER_PRODUCT", "inner_product_param"),
    "lrn": ("LRN", "lrn_param"),
    "multinomial_logistic_loss": ("MULTINOMIAL_LOGISTIC_LOSS", ""),
    "pool": ("POOLING", "pooling_param"),
    "relu": ("RELU", ""),
    "sigmoid": ("SIGMOID", ""),
    "softmax": ("SOFTMAX", ""),
    "softmax_loss": ("SOFTMAX_LOSS", ""),
    "split": ("SPLIT", ""),
    "tanh": ("TANH", ""),
    "window_data": ("WINDOW_DATA", "window_data_param"),
}
# V0 field to its name in the options and the layer types that take it.
_FIELDS = {
    "num_output": ("num_output", ("conv", "innerproduct")),
    "biasterm": ("bias_term", ("conv", "innerproduct")),
    "weight_filler": ("weight_filler", ("conv", "innerproduct")),
    "bias_filler": ("bias_filler", ("conv", "innerproduct")),
    "pad": ("pad", ("conv", "pool")),
    "kernelsize": ("kernel_size", ("conv", "pool")),
    "group": ("group", ("conv",)),
    "stride": ("stride", ("conv", "pool")),
    "pool": ("pool", ("pool",)),
    "dropout_ratio": ("dropout_ratio", ("dropout",)),
    "local_size": ("local_size", ("lrn",)),
    "alpha": ("alpha", ("lrn",)),
    "beta": ("beta", ("lrn",)),
    "k": ("k", ("lrn",)),
    "source": ("source", ("data", "hdf5_data", "images", "window_data", "infogain_loss")),
    "batchsize": ("batch_size", ("data", "hdf5_data", "images", "window_data")),
    "rand_skip": ("rand_skip", ("data", "images")),
    "shuffle_images": ("shuffle", ("images",)),
    "new_height": ("new_height", ("images",)),
    "new_width": ("new_width", ("images",)),
    "concat_dim": ("concat_dim", ("concat",)),
    "det_fg_threshold": ("fg_threshold", ("window_data",)),
    "det_bg_threshold": ("bg_threshold", ("window_data",)),
    "det_fg_fraction": ("fg_fraction", ("window_data",)),
    "det_context_pad": ("context_pad", ("window_data",)),
    "det_crop_mode": ("crop_mode", ("window_data",)),
}
_TRANSFORMS = {
    "scale": "scale",
    "meanfile": "mean_file",
    "cropsize": "crop_size",
    "mirror": "mirror",
}
_LISTS = ("blobs", "blobs_lr", "weight_decay")
# Handled apart, or, as new_num and new_channels, without any effect in Caffe.
_OTHERS = ("name", "type", "hdf5_output_param", "new_num", "new_channels")


def upgrade_v0_net(old: NetParameter, where: str) -> NetParameter:
    """The same net in V1 form, padding layers merged into their readers."""
    net = NetParameter()
    net.CopyFrom(old)
    net.ClearField("layers")
    for layer in _merge_padding(old, where):
        net.layers.append(_upgrade_layer(layer, where) if layer.HasField("layer") else layer)
    return net


def _merge_padding(net: NetParameter, where: str) -> list[V1LayerParameter]:
    """The layers without padding ones; who read a padded blob reads its source and pads."""
    writer: dict[str, V1LayerParameter | None] = dict.fromkeys(net.input)
    kept = []
    for layer in net.layers:
        new = V1LayerParameter()
        new.CopyFrom(layer)
        for i, bottom in enumerate(layer.bottom):
            if bottom not in writer:
                raise PrototxtError(
                    f'{where}: layer "{layer.layer.name}" reads "{bottom}", which no layer before '
                    f"it makes{did_you_mean(bottom, list(writer))}"
                )
            source = writer[bottom]
            if source is not None and source.layer.type == "padding":
                _take_padding(new, i, source, where)
        writer.update(dict.fromkeys(layer.top, layer))
        if layer.layer.type != "padding":
            kept.append(new)
    return kept


def _take_padding(layer: V1LayerParameter, i: int, padding: V1LayerParameter, where: str) -> None:
    if layer.layer.type not in ("conv", "pool"):
        raise PrototxtError(
            f'{where}: layer "{layer.layer.name}" ({layer.layer.type}) reads the padding layer '
            f'"{padding.layer.name}"; only conv and pool layers can'
        )
    if len(layer.bottom) != 1 or len(padding.bottom) != 1 or len(padding.top) != 1:
        raise PrototxtError(
            f'{where}: padding layer "{padding.layer.name}" and its reader "{layer.layer.name}" '
            "must have one bottom each, and the padding layer one top"
        )
    layer.layer.pad = padding.layer.pad
    layer.bottom[i] = padding.bottom[0]


def _upgrade_layer(layer: V1LayerParameter, where: str) -> V1LayerParameter:
    old, new = layer.layer, V1LayerParameter(bottom=layer.bottom, top=layer.top)
    if old.HasField("name"):
        new.name = old.name
    if old.HasField("type"):
        if old.type not in V0_TYPES:
            known = sorted(V0_TYPES)
            raise PrototxtError(
                f'{where}: layer "{old.name}": unknown old-style type "{old.type}"'
                f"{did_you_mean(old.type, known)}; known: {', '.join(known)}"
            )
        new.type = ENUMS["caffe.V1LayerParameter.LayerType"][V0_TYPES[old.type][0]]
    for name in _LISTS:
        getattr(new, name).extend(getattr(old, name))
    for name in fields_of(old):
        if name not in _LISTS and old.HasField(name):
            _move(old, name, new, where)
    return new


def _move(old: V0LayerParameter, name: str, new: V1LayerParameter, where: str) -> None:
    """Puts one V0 field where it belongs in V1; a field its type does not take is dropped."""
    if name in _OTHERS:
        if name == "hdf5_output_param" and old.type == "hdf5_output":
            new.hdf5_output_param.CopyFrom(old.hdf5_output_param)
        if name.startswith("new_"):
            _log.info('%s: layer "%s": %s has no effect, as in Caffe', where, old.name, name)
        return
    if name in _TRANSFORMS:
        setattr(new.transform_param, _TRANSFORMS[name], getattr(old, name))
        return
    new_name, types = _FIELDS[name]
    if old.type not in types:
        _log.warning(
            '%s: layer "%s": a %s layer takes no %s; ignored', where, old.name, old.type, name
        )
        return
    options = getattr(new, V0_TYPES[old.type][1])
    field, value = fields_of(options)[new_name], getattr(old, name)
    if field.repeated:
        getattr(options, new_name).append(value)
    elif field.kind == "message":
        getattr(options, new_name).CopyFrom(value)
    else:
        setattr(options, new_name, value)

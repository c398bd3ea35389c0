"""fire_plot filters and fire_plot features: what a net has learned and what it sees."""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from .. import schema
from ..errors import NetError, WeightsError
from ..pycaffe.classifier import image_transformer, read_mean
from ..pycaffe.io import load_image
from ..pycaffe.net import Net
from ..registry import did_you_mean
from ..report.grids import MOST, check_grid_name, feature_grid, filter_grid, save_grid
from .common import Parser, whole

FILTERS = """
  fire_plot filters net.caffemodel -o filters.png                the first layer's filters
  fire_plot filters net.caffemodel --layer conv2 -o filters.png  those of another
"""
FEATURES = """
  fire_plot features deploy.prototxt net.caffemodel cat.jpg --blob conv1 -o conv1.png
  fire_plot features train_val.prototxt net.caffemodel --blob pool2 -o pool2.png
                                                     the first image that the net reads itself
"""


def filters_parser() -> Parser:
    parser = Parser("fire_plot filters", FILTERS)
    parser.add_argument("weights", metavar="WEIGHTS", help="a .caffemodel or .caffemodel.h5")
    parser.add_argument("--layer", metavar="NAME", help="whose (default: the first with filters)")
    _add_output(parser)
    return parser


def features_parser() -> Parser:
    parser = Parser("fire_plot features", FEATURES)
    flag = parser.add_argument
    flag("net", metavar="NET", help="a deploy.prototxt, or a net with data of its own")
    flag("weights", metavar="WEIGHTS", help="a .caffemodel or .caffemodel.h5")
    flag("image", metavar="IMAGE", nargs="?", help="what a deploy net looks at")
    flag("--blob", required=True, metavar="NAME", help="whose activations to show")
    flag("--sample", type=whole, default=0, metavar="N", help="which of a batch (default: 0)")
    flag("--mean", metavar="FILE", help="what to subtract: a .binaryproto or .npy")
    flag(
        "--scale", type=float, default=255.0, metavar="X",
        help="what white is (default: 255; 1 for nets that learned from 0 to 1)",
    )  # fmt: skip
    _add_output(parser)
    return parser


def _add_output(parser: Parser) -> None:
    parser.add_argument("-o", "--output", required=True, metavar="FILE.png", help="the image")


def plot_filters(options: argparse.Namespace) -> None:
    check_grid_name(options.output)
    layers = {layer.name: layer for layer in schema.read_weights(options.weights) if layer.blobs}
    spatial = [name for name, layer in layers.items() if layer.blobs[0].ndim == 4]
    name = options.layer or next(iter(spatial), None)
    if name not in layers:
        hint = did_you_mean(name, list(layers)) if name else ""
        what = f'no weights of a layer "{name}"{hint}' if name else "no layer with filters"
        raise WeightsError(f"{options.weights}: {what}; it has: {', '.join(layers)}")
    weights = layers[name].blobs[0]
    save_grid(filter_grid(weights), options.output)
    _report(options.output, name, weights)


def plot_features(options: argparse.Namespace) -> None:
    check_grid_name(options.output)
    net = Net(options.net, schema.TEST, weights=options.weights)
    try:
        values = _activations(net, options)
    finally:
        net.close()
    if not np.isfinite(values).all():
        raise NetError(f'{options.net}: blob "{options.blob}" holds numbers that are not finite')
    save_grid(feature_grid(values), options.output)
    _report(options.output, options.blob, values)


def _activations(net: Net, options: argparse.Namespace) -> NDArray[np.float32]:
    """One sample of the blob that was asked for, after a forward pass."""
    if options.blob not in net.blobs:
        known = list(net.blobs)
        raise NetError(
            f'no blob "{options.blob}" in {options.net}{did_you_mean(options.blob, known)}; it '
            f"has: {', '.join(known)}"
        )
    if net.inputs:
        _feed(net, options)
    elif options.image:
        raise NetError(f"{options.net}: reads data of its own; give a deploy net, or no image")
    net.forward()
    values = np.array(net.blobs[options.blob].data, np.float32)
    samples = values.shape[0] if values.ndim else 0
    if options.sample >= samples:
        raise NetError(
            f'blob "{options.blob}" has {samples} samples in a batch; --sample must be below that'
        )
    sample: NDArray[np.float32] = values[options.sample]
    return sample


def _feed(net: Net, options: argparse.Namespace) -> None:
    if not options.image:
        raise NetError(f"{options.net}: is a deploy net; name an image that it should look at")
    name = net.inputs[0]
    channels = net.blobs[name].shape[1:2]
    color = channels == (3,)
    mean = read_mean(options.mean) if options.mean else None
    swap = (2, 1, 0) if color else None
    transformer = image_transformer(net, mean, None, options.scale, swap)
    image = transformer.preprocess(name, load_image(options.image, color))
    net.blobs[name].reshape(1, *net.blobs[name].shape[1:])
    net.reshape()
    net.blobs[name].data[0] = image


def _report(path: str, name: str, values: NDArray[np.float32]) -> None:
    tiled = values.shape[: values.ndim - 2]  # filters and channels
    cut = f" (the first {MOST})" if max(tiled, default=0) > MOST else ""
    shape = " x ".join(map(str, values.shape))
    print(f"{path}: {name}, {shape}{cut}, {values.min():g} to {values.max():g}")


GRIDS = {
    "filters": (filters_parser, plot_filters),
    "features": (features_parser, plot_features),
}

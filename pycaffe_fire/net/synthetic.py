"""Trying a net without its data: every data layer becomes DummyData of the same shapes.

Works on messages alone; images are noise in the range that the layer's transform would give,
labels are drawn from the classes the net tells apart, and so are the objects that detectors learn.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import schema
from ..errors import NetError
from ..layers import DataLayer, layer_class
from ..layers.multibox import FIELDS
from ..schema.proto import LayerParameter, NetParameter, TransformationParameter

_SOME_CLASSES = 2  # where the net does not say how many there are
_OBJECTS = 2  # in every image, where a net looks for objects


def with_synthetic_data(net: NetParameter, image: Sequence[int] | None = None) -> NetParameter:
    """A copy of the net that reads no data; `image` is channels, height, width where needed."""
    made = schema.NetParameter()
    made.CopyFrom(net)
    del made.layer[:]
    classes, objects = class_counts(net), object_labels(net)
    for layer in net.layer:
        kind = layer_class(layer.type)
        if issubclass(kind, DataLayer):
            made.layer.extend(_replaced(layer, kind, image, classes, objects))
        else:
            made.layer.add().CopyFrom(layer)
    return made


def object_labels(net: NetParameter) -> dict[str, range]:
    """Which classes the objects in a blob may have, by the layers that read them."""
    found: dict[str, range] = {}
    for layer in net.layer:
        labels = layer_class(layer.type).object_labels(layer)
        if labels is not None:
            found.setdefault(layer.bottom[-1], labels)  # detectors read objects last
    return found


def class_counts(net: NetParameter) -> dict[str, int]:
    """How many classes the labels in a blob have: what the layers that read them compare with."""
    counts: dict[str, int] = {}
    for layer in net.layer:
        if layer_class(layer.type).compares_labels and len(layer.bottom) > 1:
            classes = _outputs(net, layer.bottom[0])
            if classes:
                label = layer.bottom[1]
                counts[label] = min(classes, counts.get(label, classes))
    return counts


def _outputs(net: NetParameter, blob: str) -> int | None:
    """num_output of the nearest layer that a blob comes from, through layers without one."""
    for layer in reversed(net.layer):
        if blob not in layer.top:
            continue
        outputs = layer_class(layer.type).outputs(layer)
        if outputs is not None or not layer.bottom:
            return outputs
        blob = layer.bottom[0]
    return None


def _replaced(
    layer: LayerParameter, kind: type[DataLayer], image: Sequence[int] | None,
    classes: dict[str, int], objects: dict[str, range],
) -> list[LayerParameter]:  # fmt: skip
    """Layers that give made-up values in the place of a data layer."""
    batch = kind.batch_size(layer) or 0
    shape = list(image or kind.image_shape(layer) or ())
    if len(shape) != 3 or min(shape) < 1:
        raise NetError(
            f'layer "{layer.name}" ({layer.type}): has no crop_size, so the size of its images is '
            f"unknown; give it as channels,height,width: --synthetic 1,28,28"
        )
    low, high = _range(layer.transform_param)
    made = schema.LayerParameter(name=layer.name, type="DummyData", top=layer.top)
    made.include.extend(layer.include)
    made.exclude.extend(layer.exclude)
    param, all_made = made.dummy_data_param, [made]
    for number, top in enumerate(layer.top):
        if number and kind.feeds_objects and top in objects:
            labels = objects[top]
            param.shape.add(dim=[batch * _OBJECTS, FIELDS])
            param.data_filler.add(type="objects", value=_OBJECTS, min=labels.start, max=labels.stop)
            all_made.append(_as_objects(made, number, top))
            continue
        param.shape.add(dim=[batch, *kind.top_shape(number, shape)])
        limits = (low, high) if number == 0 else (0, classes.get(top, _SOME_CLASSES))
        kind_of_numbers = "uniform" if number == 0 else "whole"
        param.data_filler.add(type=kind_of_numbers, min=limits[0], max=limits[1])
    return all_made


def _as_objects(made: LayerParameter, number: int, top: str) -> LayerParameter:
    """Rows, which leaves can share, as a blob of objects: 1 x 1 x count x 8."""
    made.top[number] = f"{top}_rows"
    shaped = schema.LayerParameter(
        name=f"{made.name}_{top}", type="Reshape", bottom=[made.top[number]], top=[top]
    )
    shaped.reshape_param.shape.dim.extend([1, 1, -1, FIELDS])
    shaped.include.extend(made.include)
    shaped.exclude.extend(made.exclude)
    return shaped


def _range(transform: TransformationParameter) -> tuple[float, float]:
    """What pixels of 0 to 255 become."""
    means = list(transform.mean_value) or [127.5 if transform.mean_file else 0.0]
    mean = sum(means) / len(means)
    return -mean * transform.scale, (255 - mean) * transform.scale

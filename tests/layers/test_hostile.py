"""No layer ends in a raw exception: over the whole table, it works or raises a FireError."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import Net, schema
from pycaffe_fire.backend import cpu_backend, host
from pycaffe_fire.backend.base import Backend
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.errors import FireError, LayerError
from pycaffe_fire.layers import LAYERS, Context, fillers
from tests.layers.case import Case, Trial, net_text
from tests.layers.test_contract import ROWS

NUMBERS = (np.nan, np.inf, -np.inf, 1e30, -1e30, 2.0**63, 2.0**31, 1e10, -1.0, -2.0, 0.5)
PLACES = 5  # of each bottom that get a number, besides all of them
SHAPES: tuple[tuple[int, ...], ...] = (
    (), (1,), (2,), (0,), (2, 3), (2, 0), (2, 3, 4), (1, 1, 1, 1), (0, 3, 4, 5), (2, 3, 0, 5),
    (2, 3, 4, 5, 2), (2, 2, 2, 2, 2, 2, 2),
)  # fmt: skip
table = pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in ROWS])
every_backend = pytest.mark.parametrize("kind", ["cpu", "numpy"])


def backend(kind: str) -> Backend:
    return cpu_backend(1) if kind == "cpu" else NumPyBackend()


# What bottoms hold.


@every_backend
@table
def test_any_number_is_computed_with_or_refused(case: Case, kind: str) -> None:
    """NumPy casts NaN and 1e30 to arbitrary integers, with a warning that is an error here."""
    trial = Trial(case, backend(kind))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", "invalid value encountered in cast")
        for values in _spoilt(case):
            try:
                trial.both(values)
            except FireError as error:
                assert '"layer"' in str(error)
                trial = Trial(case, backend(kind))


def _spoilt(case: Case) -> Iterator[list[Any]]:
    """The values of a row with one hostile number in some places, or everywhere, of a bottom."""
    for bottom, shape in enumerate(case.shapes):
        size = int(np.prod(shape))
        places: list[Any] = [slice(None), *sorted({7919 * i % size for i in range(PLACES)})]
        for place in places:
            for number in NUMBERS:
                values = case.values()
                values[bottom].reshape(-1)[place] = number
                yield values


LABELLED = {
    "Accuracy": "", "SoftmaxWithLoss": "", "SoftmaxWithFocalLoss": "", "HingeLoss": "",
    "MultinomialLogisticLoss": "", "SoftmaxWithLossOHEM": "",
    "InfogainLoss": 'infogain_loss_param { source: "H" }',
    "CenterLoss": "center_loss_param { num_output: 3 }",
}  # fmt: skip


@pytest.mark.parametrize("label", [1e30, -1e30, 2.0**63])
@pytest.mark.parametrize("kind", LABELLED)
def test_a_label_beyond_any_class_is_named(kind: str, label: float, tmp_path: Path) -> None:
    schema.write_blob(str(tmp_path / "H"), np.eye(3, dtype=np.float32)[None, None])
    params = LABELLED[kind].replace("H", str(tmp_path / "H"))
    net = _net(f'type: "{kind}" bottom: "d" bottom: "l" top: "x" {params}', (2, 3), (2,))
    net.blobs["l"].data[...] = [1, label]
    words = f'label {label:g} of sample 1 in blob "l" is not a class: there are 3'
    with pytest.raises(LayerError, match=re.escape(words)):
        net.forward()


@pytest.mark.parametrize(
    ("layer", "shapes", "words"),
    [
        ('type: "BatchReindex" top: "x"', ((2, 3), (4,)), 'index {} at place 0 of "l"'),
        (
            'type: "Embed" top: "x" embed_param { num_output: 2 input_dim: 3 }',
            ((4,), (1,)),
            "{} at",
        ),
        ('type: "Upsample" top: "x" upsample_param { scale: 2 }', ((1, 1, 2, 2),) * 2, "index {} "),
        (
            'type: "ContrastiveLoss" bottom: "c" top: "x"',
            ((2, 3), (2, 3), (2,)),
            "label {} of pair",
        ),
    ],
)
@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e30, -1e30])
def test_the_message_shows_the_number(
    layer: str, shapes: tuple[tuple[int, ...], ...], words: str, number: float
) -> None:
    bottoms = 'bottom: "d"' + ("" if "Embed" in layer else ' bottom: "l"')
    net = _net(f"{bottoms} {layer}", *shapes)
    net.blobs["d" if "Embed" in layer else "dlc"[len(shapes) - 1]].data[...] = number
    with pytest.raises(LayerError, match=re.escape(words.format(f"{number:g}"))):
        net.forward()


def _net(layer: str, *shapes: tuple[int, ...]) -> Net:
    lines = ["force_backward: false"]
    for name, shape in zip("dlc", shapes, strict=False):
        dims = " ".join(f"dim: {size}" for size in shape)
        lines.append(
            f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ '
            f"{dims} }} }} }}"
        )
    lines.append(f'layer {{ name: "x" {layer} }}')
    return Net(schema.parse_text("\n".join(lines), schema.NetParameter()), caffe.TRAIN)


# Shapes of bottoms.


def _shaped(case: Case) -> list[Case]:
    """The row with one bottom, or all of them, of each shape."""
    found = {tuple(shape for _ in case.shapes) for shape in SHAPES}
    found |= {(shape, *(shape[:1] for _ in case.shapes[1:])) for shape in SHAPES if case.shapes}
    for place in range(len(case.shapes)):
        for shape in SHAPES:
            found.add((*case.shapes[:place], shape, *case.shapes[place + 1 :]))
    fill = tuple("normal" if callable(fill) else fill for fill in case.fill)
    weights = tuple("normal" if callable(fill) else fill for fill in case.weight_fill)
    return [
        replace(case, shapes=shapes, fill=fill, weight_fill=weights, top_shapes=None)
        for shapes in sorted(found)
    ]


@every_backend
@table
def test_bottoms_of_any_shape(case: Case, kind: str) -> None:
    """An Input without a shape is a blob without axes."""
    for shaped in _shaped(case):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                Trial(shaped, backend(kind)).both(shaped.values())
            except FireError:
                continue


@every_backend
@table
def test_another_number_of_axes_later(case: Case, kind: str) -> None:
    """A caller reshapes the bottoms of a net that was built with others."""
    trial = Trial(case, backend(kind))
    for shaped in _shaped(case):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                trial.resize(shaped)
                trial.both(shaped.values())
            except FireError:
                trial = Trial(case, backend(kind))


def test_batch_norm_names_the_blob_without_axes() -> None:
    with pytest.raises(LayerError, match='bottom "d" is a single number without axes'):
        _net('type: "BatchNorm" bottom: "d" top: "x"', ())


def test_outputs_take_blobs_without_axes_or_refuse_them(tmp_path: Path) -> None:
    """HDF5Output has no row in the table, because it writes a file."""
    param = f'hdf5_output_param {{ file_name: "{tmp_path}/x" }}'
    with pytest.raises(LayerError):
        _net(f'type: "HDF5Output" bottom: "d" bottom: "l" {param}', (), ()).forward()


@pytest.mark.parametrize("shape", [(), (0,), (5, 0), (0, 3), (4,), (2, 3), (2, 3, 3, 3)])
@pytest.mark.parametrize("kind", list(fillers.FILLERS))
def test_fillers_take_any_shape(kind: str, shape: tuple[int, ...]) -> None:
    dims = " ".join(f"dim: {size}" for size in shape)
    filler = f'data_filler {{ type: "{kind}" max: 2 }}'
    layer = f'type: "DummyData" top: "x" dummy_data_param {{ shape {{ {dims} }} {filler} }}'
    try:
        assert _net(layer).forward()["x"].shape == shape
    except LayerError as error:
        assert f"{kind} filler needs" in str(error)


# Sizes that parameters ask for.

HUGE = (2**31 - 1, 2**28, 2**20)
FREE = 1 << 30  # bytes that the machine pretends to have
ASKING = sorted({case.type: case for case in reversed(ROWS)}.values(), key=lambda case: case.name)
INTEGERS = (1, 2, 3, 4)  # protobuf's C++ types of int32 to uint64


def _size_fields(descriptor: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for field in descriptor.fields:
        if field.message_type is not None and len(path) < 3:
            yield from _size_fields(field.message_type, (*path, field.name))
        elif field.cpp_type in INTEGERS:
            yield (*path, field.name)


def _with_size(param: Any, path: tuple[str, ...], size: int) -> None:
    """Set one field, or the first of a repeated one; below repeated messages, in the first."""
    for name in path[:-1]:
        param = getattr(param, name)
        if hasattr(param, "add"):
            param = param[0] if len(param) else param.add()
    if hasattr(getattr(param, path[-1]), "append"):
        getattr(param, path[-1])[:1] = [size]
    else:
        setattr(param, path[-1], size)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.type) for case in ASKING])
def test_sizes_are_compared_with_the_memory_there_is(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "free_bytes", lambda: FREE)
    feeds = [f"in{i}" for i in range(len(case.shapes))]
    tops = [f"out{i}" for i in range(case.tops)]
    field = LAYERS[case.type].field_of(case.type)
    descriptor = schema.LayerParameter.DESCRIPTOR.fields_by_name.get(field or "")
    for path in _size_fields(descriptor.message_type, (field or "",)) if descriptor else ():
        for size in HUGE:
            param = schema.parse_text(net_text(case, feeds, tops), schema.NetParameter())
            _with_size(param.layer[-1], path, size)
            try:
                phase = schema.TRAIN if case.phase == "TRAIN" else schema.TEST
                net = Net(param, phase, backend=cpu_backend(1), context=Context())
            except FireError:
                continue
            assert sum(blob.data.nbytes for blob in net.params.get("layer", [])) <= FREE


def test_interp_that_asks_for_more_memory_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "free_bytes", lambda: 20 << 30)
    layer = 'type: "Interp" bottom: "d" top: "x" interp_param { height: 2147483647 width: 1 }'
    words = "resizing 6 x 1 to 2147483647 x 1 pixels needs 160 GiB of memory, but this machine has"
    with pytest.raises(LayerError, match=words):
        _net(layer, (1, 1, 6, 1))


def test_a_blob_that_is_larger_than_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory is asked for when it is first used: a net can be looked at without it."""
    monkeypatch.setattr(host, "free_bytes", lambda: FREE)
    net = _net('type: "Tile" bottom: "d" top: "x" tile_param { tiles: 67108864 }', (4, 4))
    with pytest.raises(
        FireError, match=r"1,073,741,824 elements needs 4.0 GiB of memory, but this"
    ):
        net.forward()


def test_a_region_much_larger_than_the_map() -> None:
    """Its bins have as many points as pixels, of which only those on the map count."""
    layer = 'type: "ROIAlign" bottom: "d" bottom: "l" top: "x" roi_align_param { pooled_h: 2 '
    net = _net(layer + "pooled_w: 2 spatial_scale: 1 }", (1, 1, 5, 5), (1, 5))
    net.blobs["d"].data[...] = 1
    net.blobs["l"].data[...] = [0, -1e30, -1e30, 1e30, 1e30]
    top = net.forward()["x"]
    assert np.isfinite(top).all() and np.abs(top).max() < 1e-6

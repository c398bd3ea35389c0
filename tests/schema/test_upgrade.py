"""Old nets and solvers become what Caffe's own upgrade tools made of them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format

from pycaffe_fire import schema
from pycaffe_fire.errors import PrototxtError

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "upgrade"
CASES = sorted(path for path in GOLDEN.glob("*.prototxt") if ".upgraded" not in path.name)


def net(text: str) -> Any:
    return schema.parse_text(text, schema.NetParameter(), "old.prototxt")


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    solver = path.name.startswith("solver")
    read = schema.read_solver if solver else schema.read_net
    text = path.with_suffix(".upgraded.prototxt").read_text()
    expected = text_format.Parse(
        text, schema.SolverParameter() if solver else schema.NetParameter()
    )
    upgraded: Any = read(path)
    assert upgraded == expected
    assert schema.to_text(upgraded) == text
    assert schema.upgrade_solver(upgraded) == expected if solver else True


def test_there_are_golden_cases() -> None:
    assert len(CASES) == 4


def test_new_nets_stay_as_they_are() -> None:
    text = 'name: "n" layer { name: "data" type: "Input" top: "data" input_param { } }'
    assert net(text) == text_format.Parse(text, schema.NetParameter())


def test_inputs_with_shapes() -> None:
    read = net(
        'input: "a" input: "b" input_shape { dim: 2 } input_shape { dim: 3 dim: 4 }'
        'layer { name: "ip" }'
    )
    assert [layer.name for layer in read.layer] == ["input", "ip"]
    assert list(read.layer[0].top) == ["a", "b"]
    assert [list(shape.dim) for shape in read.layer[0].input_param.shape] == [[2], [3, 4]]
    assert not read.input and not read.input_shape


def test_two_inputs_with_dims() -> None:
    read = net('input: "a" input: "b" input_dim: [1, 2, 3, 4, 5, 6, 7, 8]')
    shapes = [list(shape.dim) for shape in read.layer[0].input_param.shape]
    assert shapes == [[1, 2, 3, 4], [5, 6, 7, 8]]


def test_inputs_without_extents_go() -> None:
    assert net('input: "data" layer { name: "a" }') == net('layer { name: "a" }')


def test_inputs_and_extents_must_match() -> None:
    with pytest.raises(PrototxtError, match="1 input fields need .* 4 input_dim .* got 0 and 3"):
        net('input: "data" input_dim: [1, 2, 3]')


def test_batch_norm_statistics_are_not_trained() -> None:
    read = net(
        'layer { type: "BatchNorm" param { lr_mult: 1 name: "m" } param { } param { } }'
        'layer { type: "BatchNorm" param { lr_mult: 1 } }'
    )
    for spec in read.layer[0].param:
        assert spec.HasField("lr_mult") and spec.HasField("decay_mult")
        assert (spec.lr_mult, spec.decay_mult) == (0, 0)
    assert read.layer[0].param[0].name == "m"
    assert read.layer[1].param[0].lr_mult == 1


@pytest.mark.parametrize(
    ("enum", "name", "param"),
    [
        ("IMAGE_DATA", "ImageData", "image_data_param"),
        ("WINDOW_DATA", "WindowData", "window_data_param"),
    ],
)
def test_transforms_move(enum: str, name: str, param: str) -> None:
    read = net(f'layers {{ type: {enum} {param} {{ source: "s" mirror: true crop_size: 5 }} }}')
    layer = read.layer[0]
    assert layer.type == name
    assert layer.transform_param.mirror and layer.transform_param.crop_size == 5
    assert not getattr(layer, param).HasField("mirror")
    assert getattr(layer, param).source == "s"


def test_new_style_transforms_in_the_wrong_place_are_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        read = net('layer { name: "d" type: "Data" data_param { mirror: true scale: 2 } }')
    assert 'layer "d": scale, mirror in data_param has no effect' in caplog.text
    assert not read.layer[0].HasField("transform_param")


def test_every_v1_type_has_a_name() -> None:
    for name, number in schema.messages.ENUMS["caffe.V1LayerParameter.LayerType"].items():
        kind = net(f"layers {{ type: {name} }}").layer[0].type
        assert kind == schema.upgrade.V1_TYPES[number]
        assert kind.replace("With", "").lower() == name.replace("_", "").lower().replace("none", "")


def test_v1_shares_and_multipliers() -> None:
    layer = net(
        'layers { param: "w" blob_share_mode: PERMISSIVE blobs_lr: 1 blobs_lr: 2 weight_decay: 3 '
        "loss_weight: 0.5 softmax_param { axis: 2 } }"
    ).layer[0]
    expected = 'param { name: "w" share_mode: PERMISSIVE lr_mult: 1 decay_mult: 3 }'
    expected += "param { lr_mult: 2 } loss_weight: 0.5 softmax_param { axis: 2 }"
    assert layer == text_format.Parse(expected, schema.LayerParameter())


def test_v0_data_layers() -> None:
    layers = net(
        'layers { layer { name: "i" type: "images" source: "l" batchsize: 4 shuffle_images: true '
        'new_height: 8 new_width: 9 rand_skip: 1 scale: 2 meanfile: "m" cropsize: 3 mirror: true } '
        'top: "a" } layers { layer { name: "w" type: "window_data" det_fg_threshold: 0.7 '
        'det_context_pad: 2 det_crop_mode: "square" } top: "b" } layers { layer { name: "o" type: '
        '"hdf5_output" hdf5_output_param { file_name: "f" } } bottom: "a" }'
    ).layer
    expected = """
    layer { name: "i" type: "ImageData" top: "a"
      transform_param { scale: 2 mean_file: "m" crop_size: 3 mirror: true }
      image_data_param { source: "l" batch_size: 4 shuffle: true new_height: 8 new_width: 9
        rand_skip: 1 } }
    layer { name: "w" type: "WindowData" top: "b"
      window_data_param { fg_threshold: 0.7 context_pad: 2 crop_mode: "square" } }
    layer { name: "o" type: "HDF5Output" bottom: "a" hdf5_output_param { file_name: "f" } }"""
    assert list(layers) == list(text_format.Parse(expected, schema.NetParameter()).layer)


def test_v0_field_of_another_type_is_dropped_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        read = net('layers { layer { name: "r" type: "relu" num_output: 3 } top: "a" }')
    assert "a relu layer takes no num_output" in caplog.text
    assert read.layer[0] == schema.LayerParameter(name="r", type="ReLU", top=["a"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('layers { layer { name: "c" type: "cnv" } }', 'unknown old-style type "cnv"'),
        (
            'layers { layer { name: "c" type: "conv" } bottom: "dat" top: "c" } input: "data"',
            'layer "c" reads "dat", which no layer before it makes (did you mean "data"?)',
        ),
        (
            'input: "d" layers { layer { name: "p" type: "padding" pad: 1 } bottom: "d" top: "p" }'
            'layers { layer { name: "f" type: "innerproduct" } bottom: "p" top: "f" }',
            'layer "f" (innerproduct) reads the padding layer "p"',
        ),
    ],
)
def test_v0_errors(text: str, expected: str) -> None:
    with pytest.raises(PrototxtError) as caught:
        net(text)
    assert str(caught.value).startswith("old.prototxt: ") and expected in str(caught.value)


def test_solver_types() -> None:
    for old, new in (("ADAM", "Adam"), ("RMSPROP", "RMSProp"), ("SGD", "SGD")):
        solver = schema.parse_text(f"solver_type: {old}", schema.SolverParameter())
        assert solver.type == new and not solver.HasField("solver_type")
    with pytest.raises(PrototxtError, match="both the old solver_type and the new type"):
        schema.parse_text('solver_type: SGD type: "SGD"', schema.SolverParameter())


def test_nets_inside_solvers_are_upgraded() -> None:
    solver = schema.parse_text(
        "net_param { layers { type: RELU } } test_net_param { layers { type: TANH } }",
        schema.SolverParameter(),
    )
    assert solver.net_param.layer[0].type == "ReLU"
    assert solver.test_net_param[0].layer[0].type == "TanH"
    assert not solver.net_param.layers and not solver.test_net_param[0].layers

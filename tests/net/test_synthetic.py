"""Nets on made-up data: shapes, ranges and labels come from what the prototxt says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pycaffe_fire import Net, schema
from pycaffe_fire.errors import NetError
from pycaffe_fire.net.graph import filter_net
from pycaffe_fire.net.synthetic import with_synthetic_data

MODELS = Path(__file__).parents[2] / "models"
HEAD = """layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc"
  inner_product_param { num_output: %d weight_filler { type: "xavier" } } }
layer { name: "drop" type: "Dropout" bottom: "fc" top: "fc" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }"""


def net(data: Any, classes: int = 7) -> Any:
    text = f'layer {{ name: "d" top: "data" top: "label" {data} }}\n' + HEAD % classes
    return schema.parse_text(text, schema.NetParameter())


def test_images_and_labels_are_what_the_net_expects() -> None:
    made = with_synthetic_data(
        net('type: "Data" data_param { source: "x" batch_size: 64 } '
            "transform_param { crop_size: 5 mean_value: 100 mean_value: 110 mean_value: 120 "
            "scale: 0.5 }")
    )  # fmt: skip
    made.state.phase = schema.TRAIN
    ran = Net(made)
    ran.forward()
    data, label = ran.blobs["data"].data, ran.blobs["label"].data
    assert data.shape == (64, 3, 5, 5) and label.shape == (64,)
    assert -55 <= data.min() < -50 and 67 < data.max() <= 72.5
    assert set(label.astype(int)) == set(range(7))


def test_masks_have_a_class_for_every_pixel() -> None:
    text = """layer { name: "d" type: "ImageSegData" top: "data" top: "label" top: "size"
      image_data_param { source: "x" batch_size: 2 } transform_param { crop_size: 6 } }
    layer { name: "c" type: "Convolution" bottom: "data" top: "c"
      convolution_param { num_output: 4 kernel_size: 1 weight_filler { type: "xavier" } } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "c" bottom: "label" top: "loss" }"""
    made = with_synthetic_data(schema.parse_text(text, schema.NetParameter()))
    ran = Net(made, schema.TRAIN)
    ran.forward()
    label = ran.blobs["label"].data
    assert label.shape == (2, 1, 6, 6) and set(label.ravel()) == set(range(4))
    assert ran.blobs["size"].shape == (2, 1, 1, 2)


@pytest.mark.parametrize(("background", "labels"), [(0, {1, 2, 3}), (3, {0, 1, 2})])
def test_objects_for_detectors(background: int, labels: set[int]) -> None:
    text = f"""layer {{ name: "d" type: "AnnotatedData" top: "data" top: "label"
      data_param {{ source: "x" batch_size: 8 }} include {{ phase: TRAIN }}
      transform_param {{ resize_param {{ height: 6 width: 10 }} }} }}
    layer {{ name: "loc" type: "InnerProduct" bottom: "data" top: "loc"
      inner_product_param {{ num_output: 8 }} }}
    layer {{ name: "conf" type: "InnerProduct" bottom: "data" top: "conf"
      inner_product_param {{ num_output: 8 }} }}
    layer {{ name: "prior" type: "PriorBox" bottom: "data" bottom: "data" top: "all"
      prior_box_param {{ min_size: 5 }} }}
    layer {{ name: "cut" type: "Slice" bottom: "all" top: "prior" top: "rest"
      slice_param {{ axis: 2 slice_point: 8 }} }}
    layer {{ name: "none" type: "Silence" bottom: "rest" }}
    layer {{ name: "loss" type: "MultiBoxLoss" bottom: "loc" bottom: "conf" bottom: "prior"
      bottom: "label" top: "loss" multibox_loss_param {{ num_classes: 4 code_type: CENTER_SIZE
        background_label_id: {background} }} }}"""
    made = with_synthetic_data(schema.parse_text(text, schema.NetParameter()))
    assert [layer.type for layer in made.layer[:2]] == ["DummyData", "Reshape"]
    assert made.layer[1].include[0].phase == schema.TRAIN
    ran = Net(made, schema.TRAIN)
    rows = []
    for step in range(4):
        ran.context.step = step
        ran.forward()
        rows.append(ran.blobs["label"].data.copy())
    found = rows[0][0, 0]
    assert found.shape == (16, 8) and found[:, 0].tolist() == [i // 2 for i in range(16)]
    assert set(rows[0][..., 1].ravel()) | set(rows[1][..., 1].ravel()) == labels
    assert (found[:, 5:7] - found[:, 3:5] > 0.1).all() and found[:, 3:7].min() >= 0
    assert found[:, 3:7].max() <= 1 and not found[:, 7].any()
    assert not (rows[0] == rows[1]).all(), "every pass has its own"
    assert ran.blobs["loss"].data > 0


def test_the_input_stays_as_it_was() -> None:
    original = net('type: "Data" data_param { source: "x" batch_size: 2 } '
                   "transform_param { crop_size: 4 }")  # fmt: skip
    copy = schema.NetParameter()
    copy.CopyFrom(original)
    with_synthetic_data(original)
    assert original == copy


DATA = {
    "given": ('type: "Data" data_param { batch_size: 2 }', (1, 28, 28), [2, 1, 28, 28]),
    "crop": (
        'type: "Data" data_param { batch_size: 2 } transform_param { crop_size: 4 }',
        None, [2, 3, 4, 4],
    ),
    "gray": (
        'type: "Data" data_param { batch_size: 2 } '
        "transform_param { crop_size: 4 force_gray: true }",
        None, [2, 1, 4, 4],
    ),
    "resized": (
        'type: "ImageData" image_data_param { batch_size: 5 new_height: 6 new_width: 7 }',
        None, [5, 3, 6, 7],
    ),
    "memory": (
        'type: "MemoryData" '
        "memory_data_param { batch_size: 2 channels: 3 height: 4 width: 5 }",
        None, [2, 3, 4, 5],
    ),
}  # fmt: skip


@pytest.mark.parametrize("data, image, shape", DATA.values(), ids=DATA)
def test_shapes(data: Any, image: Any, shape: Any) -> None:
    layer = with_synthetic_data(net(data), image).layer[0]
    assert layer.type == "DummyData" and list(layer.top) == ["data", "label"]
    assert [list(s.dim) for s in layer.dummy_data_param.shape] == [shape, shape[:1]]


def test_an_unknown_size_is_asked_for() -> None:
    with pytest.raises(NetError, match=r'layer "d" \(Data\).*--synthetic 1,28,28'):
        with_synthetic_data(net('type: "Data" data_param { batch_size: 2 }'))


@pytest.mark.parametrize("name", ["caffenet", "alexnet", "nin", "googlenet"])
@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
def test_the_large_models(name: str, phase: str) -> None:
    param = schema.read_net(MODELS / name / "train_val.prototxt")
    param.state.phase = getattr(schema, phase)
    made = with_synthetic_data(filter_net(param))
    data = made.layer[0].dummy_data_param
    assert made.layer[0].type == "DummyData"
    assert list(data.shape[0].dim)[1] == 3 and data.shape[0].dim[2] in (224, 227)
    assert (data.data_filler[1].min, data.data_filler[1].max) == (0, 1000)
    assert list(made.layer[1:]) == list(filter_net(param).layer[1:])

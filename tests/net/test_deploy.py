"""Deploy nets derived from training nets are those that people wrote by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire import Net, schema
from pycaffe_fire.errors import NetError
from pycaffe_fire.net.deploy import derive_deploy

MODELS = Path(__file__).parents[2] / "models"
SHAPES = {"lenet": (1, 28, 28), "cifar10_full": (3, 32, 32), "cifar10_quick": (3, 32, 32)}


def wiring(net: Any) -> list[tuple[str, str, tuple[str, ...], tuple[str, ...]]]:
    return [(layer.name, layer.type, tuple(layer.bottom), tuple(layer.top)) for layer in net.layer]


def parsed(text: str) -> Any:
    return schema.parse_text(text, schema.NetParameter(), "test")


CLASSIFIERS = sorted(
    p.parent.name for p in MODELS.glob("*/deploy.prototxt") if "detection_out" not in p.read_text()
)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_shipped_nets(name: str) -> None:
    made = derive_deploy(
        schema.read_net(str(MODELS / name / "train_val.prototxt")), SHAPES.get(name)
    )
    shipped = schema.read_net(str(MODELS / name / "deploy.prototxt"))
    assert wiring(made.net) == wiring(shipped)
    shapes = [list(net.layer[0].input_param.shape[0].dim)[1:] for net in (made.net, shipped)]
    assert shapes[0] == shapes[1]
    assert made.outputs == ["prob"]
    assert any("loss1" in loss for loss in made.left_out) == (name == "googlenet")


def test_it_computes_what_the_training_net_does(tmp_path: Path) -> None:
    image = (1, 28, 28)
    text = schema.to_text(
        derive_deploy(schema.read_net(str(MODELS / "lenet/train_val.prototxt")), image).net
    )
    assert "filler" not in text and "lr_mult" not in text and "phase" not in text
    shipped = Net(str(MODELS / "lenet/deploy.prototxt"), schema.TEST)
    shipped.save(str(tmp_path / "w.caffemodel"))
    (tmp_path / "deploy.prototxt").write_text(text)
    ours = Net(
        str(tmp_path / "deploy.prototxt"), schema.TEST, weights=str(tmp_path / "w.caffemodel")
    )
    values = np.random.default_rng(0).random((1, *image), np.float32)
    found = []
    for net in (ours, shipped):
        net.blobs["data"].reshape(1, *image)
        net.blobs["data"].data[...] = values
        found.append(np.array(net.forward()["prob"]))
    np.testing.assert_array_equal(found[0], found[1])


SIAMESE = """
layer { name: "d" type: "DummyData" top: "x" top: "y" top: "t"
  dummy_data_param { shape { dim: 4 dim: 3 dim: 5 } shape { dim: 4 dim: 3 dim: 5 }
    shape { dim: 4 } } }
layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" param { name: "w" lr_mult: 2 }
  inner_product_param { num_output: 2 bias_term: false } }
layer { name: "b" type: "InnerProduct" bottom: "y" top: "b" param { name: "w" lr_mult: 2 }
  inner_product_param { num_output: 2 bias_term: false } }
layer { name: "dead" type: "Silence" bottom: "b" }
layer { name: "both" type: "Concat" bottom: "a" bottom: "b" top: "both" }
layer { name: "l1" type: "SigmoidCrossEntropyLoss" bottom: "both" bottom: "t" top: "l1" }
layer { name: "l2" type: "EuclideanLoss" bottom: "a" bottom: "b" top: "l2" }
"""


def test_several_inputs_and_heads_and_shared_weights() -> None:
    made = derive_deploy(parsed(SIAMESE))
    assert [layer.name for layer in made.net.layer] == ["x", "y", "a", "b", "both", "l1_prob"]
    assert [list(layer.input_param.shape[0].dim) for layer in made.net.layer[:2]] == [[1, 3, 5]] * 2
    assert made.outputs == ["l1_prob", "a"] and made.net.layer[-1].type == "Sigmoid"
    assert [spec.name for spec in made.net.layer[2].param] == ["w"]
    assert not made.net.layer[2].param[0].HasField("lr_mult")
    one = derive_deploy(parsed(SIAMESE), outputs=["a"])
    assert [layer.name for layer in one.net.layer] == ["x", "a"] and one.outputs == ["a"]


def test_refusals() -> None:
    with pytest.raises(NetError, match='no blob "bth" to be an output .did you mean "both"'):
        derive_deploy(parsed(SIAMESE), outputs=["bth"])
    lenet = schema.read_net(str(MODELS / "lenet/train_val.prototxt"))
    lenet.layer[1].data_param.source = "nowhere_lmdb"
    with pytest.raises(NetError, match="nowhere_lmdb.*give it: --shape channels,height,width"):
        derive_deploy(lenet)
    with pytest.raises(NetError, match="no layers that compute anything"):
        derive_deploy(schema.NetParameter(layer=lenet.layer[:2]))

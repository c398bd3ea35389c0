"""NetSpec: names, nesting, shortcuts, and errors that name layer and field."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

from pycaffe_fire import Net, schema
from pycaffe_fire.errors import NetError
from pycaffe_fire.pycaffe.net_spec import Function, NetSpec, Top, assign_proto, to_proto
from pycaffe_fire.pycaffe.net_spec import layers as L
from pycaffe_fire.pycaffe.net_spec import params as P


def same(net: Any, text: str) -> bool:
    return bool(net == text_format.Parse(text, schema.NetParameter()))


def lenet() -> NetSpec:
    n = NetSpec()
    n.data, n.label = L.DummyData(
        shape=[dict(dim=[2, 1, 28, 28]), dict(dim=[2])],
        data_filler=[dict(type="gaussian"), dict(type="constant", value=3)],
        ntop=2,
    )
    n.conv1 = L.Convolution(
        n.data,
        kernel_size=5,
        num_output=4,
        weight_filler=dict(type="xavier"),
        param=[dict(lr_mult=1), dict(lr_mult=2)],
    )
    n.pool1 = L.Pooling(n.conv1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.ip1 = L.InnerProduct(n.pool1, num_output=6, weight_filler=dict(type="xavier"))
    n.relu1 = L.ReLU(n.ip1, in_place=True)
    n.ip2 = L.InnerProduct(n.relu1, num_output=5, weight_filler=dict(type="xavier"))
    n.loss = L.SoftmaxWithLoss(n.ip2, n.label)
    return n


def test_lenet_is_what_was_written_and_runs() -> None:
    net = lenet().to_proto()
    assert [layer.name for layer in net.layer] == [
        "data", "conv1", "pool1", "ip1", "relu1", "ip2", "loss",
    ]  # fmt: skip
    assert list(net.layer[0].top) == ["data", "label"]
    assert list(net.layer[4].top) == ["ip1"] == list(net.layer[5].bottom)
    assert same(
        schema.NetParameter(layer=net.layer[1:3]),
        """layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
             param { lr_mult: 1 } param { lr_mult: 2 }
             convolution_param { kernel_size: 5 num_output: 4 weight_filler { type: "xavier" } } }
           layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1"
             pooling_param { pool: MAX kernel_size: 2 stride: 2 } }""",
    )
    built = Net(net, schema.TRAIN)
    assert built.forward()["loss"] > 0


def test_names_without_a_spec_are_made() -> None:
    data = L.Input(shape=dict(dim=[1, 2]))
    first = L.InnerProduct(data, num_output=3)
    net = to_proto(L.InnerProduct(first, num_output=4), L.Silence(first).fn.tops[0])
    assert [x.name for x in net.layer] == ["Input1", "InnerProduct1", "InnerProduct2", "Silence1"]
    assert list(net.layer[2].bottom) == ["InnerProduct1"]
    assert first.to_proto() == schema.NetParameter(layer=net.layer[:2])


def test_nameless_tops_between_named_ones() -> None:
    n = NetSpec()
    n.data = L.Input(shape=dict(dim=[1, 4]))
    a, b = L.Slice(n.data, ntop=2, slice_point=2)
    n.sum = L.Eltwise(a, b)
    net = n.to_proto()
    assert [x.name for x in net.layer] == ["data", "Slice1", "sum"]
    assert list(net.layer[1].top) == ["Slice1", "Slice2"]


def test_layers_without_tops() -> None:
    n = NetSpec()
    n.data = L.Input(shape=dict(dim=[1, 4]))
    n.quiet = L.Silence(n.data, ntop=0)
    assert isinstance(n.quiet, Function)
    last = n.to_proto().layer[-1]
    assert (last.name, list(last.top)) == ("quiet", [])
    n.also, n.quiet = n.data, L.Dropout(n.data)
    assert [x.name for x in n.to_proto().layer] == ["also", "quiet"]  # the last name counts


def test_items_updates_and_deletion() -> None:
    n = lenet()
    n["a/b"] = L.Dropout(n["ip2"], dropout_ratio=0.25)
    n.update("conv1", {"num_output": 7})
    del n.loss
    net = n.to_proto()
    assert net.layer[-1].name == "a/b" and net.layer[-1].dropout_param.dropout_ratio == 0.25
    assert net.layer[1].convolution_param.num_output == 7
    assert "loss" not in n and "conv1" in n
    with pytest.raises(AttributeError, match='"poll1" .did you mean "pool1"'):
        n.poll1  # noqa: B018
    with pytest.raises(KeyError):
        n["nothing"]


def test_fields_of_the_layer_itself() -> None:
    layer = to_proto(
        L.Python(
            module="m", layer="Mine", param_str="{}", loss_weight=2, name="other",
            include=dict(phase=schema.TEST, stage=["a", "b"]),
        )
    ).layer[0]  # fmt: skip
    assert layer.name == "other" and list(layer.loss_weight) == [2]
    assert layer.python_param == schema.PythonParameter(module="m", layer="Mine", param_str="{}")
    assert layer.include[0].phase == schema.TEST and list(layer.include[0].stage) == ["a", "b"]


def test_types_that_borrow_parameters() -> None:
    data = L.Input(shape=dict(dim=[1, 1, 4, 4]))
    plain = L.Deconvolution(data, num_output=2, kernel_size=3).to_proto()
    nested = L.Deconvolution(data, convolution_param=dict(num_output=2, kernel_size=3)).to_proto()
    assert plain == nested
    assert plain.layer[1].convolution_param.num_output == 2


def test_enums_messages_and_numpy_values() -> None:
    assert P.Data.LMDB == schema.DataParameter.LMDB and P.Pooling.AVE == 1
    layer = schema.LayerParameter()
    assign_proto(layer, "pooling_param", {"pool": "AVE", "kernel_size": np.int64(3)})
    assign_proto(layer, "loss_weight", np.array([1.5, 2.5]))
    assign_proto(layer, "blobs", schema.BlobProto(data=[1]))
    assert layer.pooling_param.pool == P.Pooling.AVE and layer.pooling_param.kernel_size == 3
    assert list(layer.loss_weight) == [1.5, 2.5] and list(layer.blobs[0].data) == [1]


@pytest.mark.parametrize(
    "kind, params, error, message",
    [
        ("Pooling", {"kernel_sise": 3}, AttributeError, r"Pooling1.*did you mean \"kernel_size\""),
        ("Pooling", {"pool": "LEAST"}, TypeError, "one of MAX, AVE, STOCHASTIC"),
        ("Pooling", {"kernel_size": "big"}, TypeError, '"kernel_size" is of type uint32'),
        ("Pooling", {"pooling_param": 3}, TypeError, "give a dict of its fields, got 3"),
        ("ReLU", {"power": 2}, AttributeError, r"power_param=dict\(power="),
        ("Mine", {"frobnicate": 2}, AttributeError, 'no field "frobnicate"'),
        ("Data", {"transform_param": {"srop": 1}}, AttributeError, 'TransformationParam.*"srop"'),
    ],
)
def test_wrong_fields(kind: str, params: dict[str, Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        to_proto(getattr(L, kind)(**params))
    assert isinstance(caught.value, NetError)


def test_wrong_inputs() -> None:
    with pytest.raises(TypeError, match="Concat input 0 is not a Top .type is <class 'tuple'>"):
        L.Concat(L.Slice(L.Input(), ntop=2))
    n = NetSpec()
    n.both = L.Slice(L.Input(), ntop=2)
    with pytest.raises(TypeError, match='"both" is not what one layer returns, but a tuple'):
        n.to_proto()
    with pytest.raises(AttributeError, match='no parameters "Poolling".*"Pooling"'):
        P.Poolling.MAX  # noqa: B018
    assert isinstance(L.Input(), Top)

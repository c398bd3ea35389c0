"""Nets that cannot be wired: one sentence that says what, where and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

import pycaffe_fire as caffe
from pycaffe_fire.errors import FireError, NetError
from pycaffe_fire.layers.not_built_in import NOT_BUILT_IN
from tests.net.net_cases import conv, inputs, ip, layer, make, relu, softmax_loss, write


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            inputs() + "\n" + layer("Convolutoin", "c", "data"),
            r'net.prototxt:3: layer "c".*unknown .* "Convolutoin" \(did you mean "Convolution',
        ),
        (
            inputs() + "\n" + ip("a", "dta"),
            r'net.prototxt:3: layer "a" \(InnerProduct\).*bottom 0, "dta" \(did you mean "data"',
        ),
        (
            inputs() + ip("a", "data") + ip("b", "data", top="a"),
            r'net.prototxt:3: layer "b".*top "a".*already',
        ),
        (
            inputs() + layer("ReLU", "r", "data label", "x"),
            r'net.prototxt:2: layer "r" \(ReLU\): expects 1 bottom, got 2 \(data.*, label',
        ),
        (
            inputs() + layer("SoftmaxWithLoss", "l", "data"),
            r'layer "l" \(SoftmaxWithLoss\): expects 2.* bottoms, got 1 \(data\)',
        ),
        (
            inputs() + ip("a", "data", extra="param { } param { } param { }"),
            r'layer "a".*2 weight blob\(s\).*3 param',
        ),
        (
            inputs() + ip("a", "data", extra="propagate_down: true propagate_down: true"),
            r'layer "a".*propagate_down must be given 1 times.*got 2',
        ),
        (
            inputs() + ip("a", "data", extra="loss_weight: 1 loss_weight: 1"),
            r'layer "a".*loss_weight must be given 1 times.*got 2',
        ),
        (
            inputs() + conv("c", "data", param="kernel_size: 9 bias_term: false"),
            r'layer "c".*kernel \[9, 9\] does not fit.*\[4, 3, 8, 8\]',
        ),
        (
            inputs() + ip("a", "data").replace('"xavier"', '"xaver"'),
            r'layer "a".*unknown filler type "xaver" \(did you mean "xavier"',
        ),
        (
            inputs() + ip("p", "data") + layer("Pooling", "q", "data") + relu("r", "p"),
            r'layer "q" \(Pooling\)',
        ),
        (
            inputs() + conv("c", "data") + layer("Pooling", "p", "c", extra="pooling_param"
            " { kernel_size: 2 }") + relu("r", "c"),
            r'layer "r".*top "c".*already',
        ),
        (
            layer("Input", "in", "", "data", "input_param { shape { dim: -1 } }"),
            r'layer "in".*negative',
        ),
        (
            layer("Input", "in", "", "data", "input_param { shape { dim: 70000 dim: 70000 } }"),
            r'layer "in".*4,900,000,000 elements',
        ),
        (
            inputs()
            + layer("ReLU", "r", "data", extra="include { min_level: 1 } exclude { }"),
            r'layer "r".*not both',
        ),
    ],
)  # fmt: skip
def test_messages(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(FireError, match=message):
        caffe.Net(path, caffe.TRAIN)


def test_label_gradients_are_refused() -> None:
    net = make(
        inputs() + ip("a", "data") + ip("l", "data", 1) + layer("SoftmaxWithLoss", "x", "a l")
    )
    for blob in net.params["l"]:
        blob.data[...] = 0  # a label of 0
    net.forward()
    with pytest.raises(NetError, match='"x".*labels'):
        net.backward()


@pytest.mark.parametrize("kind", NOT_BUILT_IN)
def test_types_that_are_not_built_in_have_a_way_out(kind: str) -> None:
    with pytest.raises(NetError) as caught:
        make(inputs() + layer(kind, "x", "data"))
    assert str(caught.value) == f'layer "x" ({kind}): is not built in; {NOT_BUILT_IN[kind]}'
    assert kind not in caffe.layer_type_list()


def test_a_missing_file() -> None:
    with pytest.raises(FireError, match="nowhere.prototxt"):
        caffe.Net("nowhere.prototxt", caffe.TEST)


def test_a_failed_net_leaves_the_next_one_alone() -> None:
    with pytest.raises(NetError):
        make(inputs() + layer("ReLU", "r", "nothing"))
    make(inputs() + ip("a", "data") + softmax_loss("a")).forward()

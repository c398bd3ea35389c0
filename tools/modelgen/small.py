"""LeNet and Caffe's two CIFAR-10 nets."""

from __future__ import annotations

from functools import partial

from modelgen.prototxt import (
    AVE,
    LR_AND_DECAY,
    LR_ONLY,
    MAX,
    TEST,
    TRAIN,
    XAVIER,
    NetText,
    constant,
    gaussian,
)


def _train_val(net: NetText, scores: str) -> NetText:
    net.accuracy("accuracy", scores)
    net.loss("loss", scores)
    return net


def _deploy(net: NetText, scores: str) -> NetText:
    net.prob(scores)
    return net


def _lenet_body(net: NetText) -> str:
    conv = partial(net.conv, weight=XAVIER, bias=constant(0), param=LR_ONLY)
    fc = partial(net.fc, weight=XAVIER, bias=constant(0), param=LR_ONLY)
    x = net.pool("pool1", conv("conv1", "data", 20, 5), MAX, 2, 2)
    x = net.pool("pool2", conv("conv2", x, 50, 5), MAX, 2, 2)
    x = net.relu("relu1", fc("ip1", x, 500))
    return fc("ip2", x, 10)


def lenet_train_val() -> NetText:
    net = NetText("LeNet", "LeNet on 28x28 grey digits: training and testing.")
    to_unit = {"scale": 0.00390625}
    net.data("mnist", TRAIN, "data/digits_train_lmdb", 64, to_unit)
    net.data("mnist", TEST, "data/digits_test_lmdb", 100, to_unit)
    return _train_val(net, _lenet_body(net))


def lenet_deploy() -> NetText:
    net = NetText("LeNet", "LeNet for classifying: 28x28 grey images scaled to 0..1.")
    net.input((64, 1, 28, 28))
    return _deploy(net, _lenet_body(net))


def _cifar_data(net: NetText) -> None:
    less_mean = {"mean_file": "data/cifar10/mean.binaryproto"}
    net.data("cifar", TRAIN, "data/cifar10_train_lmdb", 100, less_mean)
    net.data("cifar", TEST, "data/cifar10_test_lmdb", 100, less_mean)


def _quick_body(net: NetText) -> str:
    conv = partial(net.conv, kernel=5, pad=2, bias=constant(0), param=LR_ONLY)
    fc = partial(net.fc, weight=gaussian(0.1), bias=constant(0), param=LR_ONLY)
    x = net.pool("pool1", conv("conv1", "data", 32, weight=gaussian(0.0001)), MAX, 3, 2)
    x = net.relu("relu1", x)
    x = net.relu("relu2", conv("conv2", x, 32, weight=gaussian(0.01)))
    x = net.pool("pool2", x, AVE, 3, 2)
    x = net.relu("relu3", conv("conv3", x, 64, weight=gaussian(0.01)))
    x = net.pool("pool3", x, AVE, 3, 2)
    return fc("ip2", fc("ip1", x, 64), 10)


def quick_train_val() -> NetText:
    net = NetText("CIFAR10_quick", "Caffe's quick CIFAR-10 net: training and testing.")
    _cifar_data(net)
    return _train_val(net, _quick_body(net))


def quick_deploy() -> NetText:
    net = NetText("CIFAR10_quick", "Caffe's quick CIFAR-10 net for classifying.")
    net.input((1, 3, 32, 32))
    return _deploy(net, _quick_body(net))


def _full_body(net: NetText) -> str:
    conv = partial(net.conv, kernel=5, pad=2, bias=constant(0), param=LR_ONLY)
    norm = partial(net.lrn, local_size=3, alpha=5e-05, region="WITHIN_CHANNEL")
    x = net.pool("pool1", conv("conv1", "data", 32, weight=gaussian(0.0001)), MAX, 3, 2)
    x = norm("norm1", net.relu("relu1", x))
    x = net.relu("relu2", conv("conv2", x, 32, weight=gaussian(0.01)))
    x = norm("norm2", net.pool("pool2", x, AVE, 3, 2))
    # Caffe's own file gives conv3 no multipliers, so its bias learns at the plain rate.
    x = net.relu("relu3", conv("conv3", x, 64, weight=gaussian(0.01), param=()))
    x = net.pool("pool3", x, AVE, 3, 2)
    heavy_decay = ({"lr_mult": 1, "decay_mult": 250}, LR_AND_DECAY[1])
    return net.fc("ip1", x, 10, weight=gaussian(0.01), bias=constant(0), param=heavy_decay)


def full_train_val() -> NetText:
    net = NetText("CIFAR10_full", "Caffe's full CIFAR-10 net: training and testing.")
    _cifar_data(net)
    return _train_val(net, _full_body(net))


def full_deploy() -> NetText:
    net = NetText("CIFAR10_full", "Caffe's full CIFAR-10 net for classifying.")
    net.input((1, 3, 32, 32))
    return _deploy(net, _full_body(net))

"""CaffeNet, AlexNet, Network-in-Network and GoogLeNet on ImageNet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from modelgen.prototxt import (
    AVE,
    MAX,
    TEST,
    TRAIN,
    XAVIER,
    Message,
    NetText,
    constant,
    gaussian,
)

TEST_BATCH = 50


MEAN_COLOUR = (104, 117, 123)  # blue, green, red


def data(
    net: NetText,
    crop: int,
    batch_size: int,
    mean: Sequence[float] = MEAN_COLOUR,
    scale: float | None = None,
) -> None:
    def transform(mirror: bool) -> Message:
        pixels: dict[str, Any] = {} if scale is None else {"scale": scale}
        return pixels | {"mirror": mirror, "crop_size": crop, "mean_value": mean}

    net.data("data", TRAIN, "data/ilsvrc12_train_lmdb", batch_size, transform(True))
    net.data("data", TEST, "data/ilsvrc12_val_lmdb", TEST_BATCH, transform(False))


def _train_val(name: str, about: str, body: Callable[[NetText], str], batch: int) -> NetText:
    net = NetText(name, f"{about}: training and testing, global batch {batch}.")
    data(net, 227, batch)
    scores = body(net)
    net.accuracy("accuracy", scores)
    net.loss("loss", scores)
    return net


def _deploy(name: str, about: str, body: Callable[[NetText], str]) -> NetText:
    net = NetText(name, f"{about} for classifying.")
    net.input((10, 3, 227, 227))
    net.prob(body(net))
    return net


def _krizhevsky(net: NetText, bias: float, norm_first: bool) -> str:
    """The 2012 winner's layers; `bias` starts the layers that do not start at zero."""

    def pool_and_norm(i: int, x: str) -> str:
        if norm_first:
            return net.pool(f"pool{i}", net.lrn(f"norm{i}", x), MAX, 3, 2)
        return net.lrn(f"norm{i}", net.pool(f"pool{i}", x, MAX, 3, 2))

    conv = partial(net.conv, weight=gaussian(0.01))
    zero, start = constant(0), constant(bias)
    x = net.relu("relu1", conv("conv1", "data", 96, 11, stride=4, bias=zero))
    x = pool_and_norm(1, x)
    x = net.relu("relu2", conv("conv2", x, 256, 5, pad=2, group=2, bias=start))
    x = pool_and_norm(2, x)
    x = net.relu("relu3", conv("conv3", x, 384, 3, pad=1, bias=zero))
    x = net.relu("relu4", conv("conv4", x, 384, 3, pad=1, group=2, bias=start))
    x = net.relu("relu5", conv("conv5", x, 256, 3, pad=1, group=2, bias=start))
    x = net.pool("pool5", x, MAX, 3, 2)
    for i in (6, 7):
        x = net.relu(f"relu{i}", net.fc(f"fc{i}", x, 4096, weight=gaussian(0.005), bias=start))
        x = net.dropout(f"drop{i}", x, 0.5)
    return net.fc("fc8", x, 1000, weight=gaussian(0.01), bias=zero)


_caffenet = partial(_krizhevsky, bias=1, norm_first=False)
_alexnet = partial(_krizhevsky, bias=0.1, norm_first=True)


def caffenet_train_val() -> NetText:
    return _train_val("CaffeNet", "BVLC's reference CaffeNet", _caffenet, 256)


def caffenet_deploy() -> NetText:
    return _deploy("CaffeNet", "BVLC's reference CaffeNet", _caffenet)


def alexnet_train_val() -> NetText:
    return _train_val("AlexNet", "BVLC's AlexNet", _alexnet, 256)


def alexnet_deploy() -> NetText:
    return _deploy("AlexNet", "BVLC's AlexNet", _alexnet)


def _nin(net: NetText) -> str:
    """Four blocks of a convolution and two 1x1 ("cccp") ones; the class scores are averages."""

    def conv(
        name: str,
        x: str,
        outputs: int,
        kernel: int,
        std: float,
        relu: str,
        pad: int = 0,
        stride: int = 1,
    ) -> str:
        # The published weights name the last three layers otherwise than their tops.
        top = name.removesuffix("-1024")
        fill = partial(net.conv, weight=gaussian(std), bias=constant(0))
        return net.relu(relu, fill(name, x, outputs, kernel, pad=pad, stride=stride, top=top))

    # With a deviation of 0.01 everywhere the loss stays at chance level, 6.9.
    cccp = partial(conv, kernel=1, std=0.05)
    x = conv("conv1", "data", 96, 11, 0.01, "relu0", stride=4)
    x = cccp("cccp2", cccp("cccp1", x, 96, relu="relu1"), 96, relu="relu2")
    x = net.pool("pool0", x, MAX, 3, 2)
    x = conv("conv2", x, 256, 5, 0.01, "relu3", pad=2)
    x = cccp("cccp4", cccp("cccp3", x, 256, relu="relu5"), 256, relu="relu6")
    x = net.pool("pool2", x, MAX, 3, 2)
    x = conv("conv3", x, 384, 3, 0.01, "relu7", pad=1)
    x = cccp("cccp6", cccp("cccp5", x, 384, relu="relu8"), 384, relu="relu9")
    x = net.dropout("drop", net.pool("pool3", x, MAX, 3, 2), 0.5)
    x = conv("conv4-1024", x, 1024, 3, 0.05, "relu10", pad=1)
    x = cccp("cccp8-1024", cccp("cccp7-1024", x, 1024, relu="relu11"), 1000, relu="relu12")
    return net.pool("pool4", x, AVE, 6, 1)


def nin_train_val(batch: int) -> NetText:
    return _train_val("nin_imagenet", "Network-in-Network", _nin, batch)


def nin_deploy() -> NetText:
    return _deploy("nin_imagenet", "Network-in-Network", _nin)


# Outputs of the branches 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection.
INCEPTIONS = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}


class GoogLeNetText(NetText):
    """GoogLeNet's blocks: all weights xavier, all biases 0.2 but the classifiers'."""

    def conv_relu(self, name: str, x: str, outputs: int, kernel: int, stride: int = 1) -> str:
        """Size-keeping convolution "block/what" and its in-place ReLU "block/relu_what"."""
        block, what = name.split("/")
        relu = f"{block}/relu_{what.removesuffix('_s2')}"
        fill = partial(self.conv, weight=XAVIER, bias=constant(0.2))
        return self.relu(relu, fill(name, x, outputs, kernel, pad=kernel // 2, stride=stride))

    def inception(self, which: str, x: str) -> str:
        one, three_reduce, three, five_reduce, five, proj = INCEPTIONS[which]
        block = f"inception_{which}"
        conv = self.conv_relu
        branch1 = conv(f"{block}/1x1", x, one, 1)
        reduced3 = conv(f"{block}/3x3_reduce", x, three_reduce, 1)
        branch3 = conv(f"{block}/3x3", reduced3, three, 3)
        reduced5 = conv(f"{block}/5x5_reduce", x, five_reduce, 1)
        branch5 = conv(f"{block}/5x5", reduced5, five, 5)
        pooled = self.pool(f"{block}/pool", x, MAX, 3, 1, pad=1)
        branch_pool = conv(f"{block}/pool_proj", pooled, proj, 1)
        return self.layer(f"{block}/output", "Concat", [branch1, branch3, branch5, branch_pool])

    def classifier(self, head: str, x: str) -> str:
        return self.fc(f"{head}/classifier", x, 1000, weight=XAVIER, bias=constant(0))

    def auxiliary_head(self, head: str, x: str) -> None:
        x = self.pool(f"{head}/ave_pool", x, AVE, 5, 3)
        x = self.conv_relu(f"{head}/conv", x, 128, 1)
        x = self.fc(f"{head}/fc", x, 1024, weight=XAVIER, bias=constant(0.2))
        x = self.dropout(f"{head}/drop_fc", self.relu(f"{head}/relu_fc", x), 0.7)
        scores = self.classifier(head, x)
        self.loss(f"{head}/loss", scores, f"{head}/loss1", loss_weight=0.3)
        self.top_1_and_5(head, scores)

    def top_1_and_5(self, head: str, scores: str) -> None:
        self.accuracy(f"{head}/top-1", scores)
        self.accuracy(f"{head}/top-5", scores, top_k=5)

    def body(self, heads: bool) -> str:
        """Everything between the images and the main scores."""
        x = self.conv_relu("conv1/7x7_s2", "data", 64, 7, stride=2)
        x = self.lrn("pool1/norm1", self.pool("pool1/3x3_s2", x, MAX, 3, 2))
        x = self.conv_relu("conv2/3x3", self.conv_relu("conv2/3x3_reduce", x, 64, 1), 192, 3)
        x = self.pool("pool2/3x3_s2", self.lrn("conv2/norm2", x), MAX, 3, 2)
        x = self.inception("3b", self.inception("3a", x))
        x = self.inception("4a", self.pool("pool3/3x3_s2", x, MAX, 3, 2))
        if heads:
            self.auxiliary_head("loss1", x)
        for which in ("4b", "4c", "4d"):
            x = self.inception(which, x)
        if heads:
            self.auxiliary_head("loss2", x)
        x = self.pool("pool4/3x3_s2", self.inception("4e", x), MAX, 3, 2)
        x = self.inception("5b", self.inception("5a", x))
        x = self.pool("pool5/7x7_s1", x, AVE, 7, 1)
        return self.classifier("loss3", self.dropout("pool5/drop_7x7_s1", x, 0.4))


def googlenet_train_val(batch: int) -> NetText:
    about = f"GoogLeNet with both auxiliary heads: training and testing, global batch {batch}."
    net = GoogLeNetText("GoogleNet", about)
    data(net, 224, batch)
    scores = net.body(heads=True)
    net.loss("loss3/loss3", scores, loss_weight=1)
    net.top_1_and_5("loss3", scores)
    return net


def googlenet_deploy() -> NetText:
    net = GoogLeNetText("GoogleNet", "GoogLeNet for classifying: no auxiliary heads.")
    net.input((10, 3, 224, 224))
    net.prob(net.body(heads=False))
    return net

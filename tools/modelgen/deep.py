"""VGG-16, SqueezeNet 1.1, ResNet-50 and MobileNet v1 on ImageNet."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from modelgen import imagenet
from modelgen.prototxt import AVE, MAX, MSRA, XAVIER, NetText, constant, gaussian

Body = Callable[[NetText], str]


def _heads(net: NetText, scores: str) -> NetText:
    net.accuracy("accuracy", scores)
    net.accuracy("accuracy_top5", scores, top_k=5)
    net.loss("loss", scores)
    return net


def _train_val(name: str, about: str, body: Body, crop: int, batch: int) -> NetText:
    net = NetText(name, f"{about}: training and testing, global batch {batch}.")
    imagenet.data(net, crop, batch)
    return _heads(net, body(net))


def _deploy(name: str, about: str, body: Body, crop: int) -> NetText:
    net = NetText(name, f"{about} for classifying.")
    net.input((10, 3, crop, crop))
    net.prob(body(net))
    return net


# Outputs of the 3x3 convolutions of each block; a pooling follows every block.
VGG_BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def _vgg16(net: NetText) -> str:
    # Each layer of xavier weights and ReLU halves the variance, which brings pixels of a
    # deviation near 65 down to scores near 1; msra would keep them so large that it diverges.
    conv = partial(net.conv, weight=XAVIER, bias=constant(0), pad=1)
    fc = partial(net.fc, weight=XAVIER, bias=constant(0))
    x = "data"
    for block, outputs in enumerate(VGG_BLOCKS, 1):
        for i, count in enumerate(outputs, 1):
            x = net.relu(f"relu{block}_{i}", conv(f"conv{block}_{i}", x, count, 3))
        x = net.pool(f"pool{block}", x, MAX, 2, 2)
    for i in (6, 7):
        x = net.relu(f"relu{i}", fc(f"fc{i}", x, 4096))
        x = net.dropout(f"drop{i}", x, 0.5)
    return fc("fc8", x, 1000)


_VGG = ("VGG_ILSVRC_16_layers", "VGG-16", _vgg16, 224)


def vgg16_train_val() -> NetText:
    return _train_val(*_VGG, batch=256)


def vgg16_deploy() -> NetText:
    return _deploy(*_VGG)


# Outputs of fire modules 2 to 9: squeeze, and each of the two expansions.
FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))


def _squeezenet(net: NetText) -> str:
    # The published net sets no multipliers: its biases learn and decay as its weights do.
    plain = partial(net.conv, bias=constant(0), param=())

    def fire(i: int, x: str, squeeze: int, expand: int) -> str:
        def conv(what: str, x: str, outputs: int, kernel: int) -> str:
            name = f"fire{i}/{what}{kernel}x{kernel}"
            top = plain(name, x, outputs, kernel, pad=kernel // 2, weight=XAVIER)
            return net.relu(f"fire{i}/relu_{what}{kernel}x{kernel}", top)

        x = conv("squeeze", x, squeeze, 1)
        branches = [conv("expand", x, expand, 1), conv("expand", x, expand, 3)]
        return net.layer(f"fire{i}/concat", "Concat", branches)

    x = net.relu("relu_conv1", plain("conv1", "data", 64, 3, stride=2, weight=XAVIER))
    x = net.pool("pool1", x, MAX, 3, 2)
    for i, (squeeze, expand) in enumerate(FIRES, 2):
        x = fire(i, x, squeeze, expand)
        if i in (3, 5):
            x = net.pool(f"pool{i}", x, MAX, 3, 2)
    x = plain("conv10", net.dropout("drop9", x, 0.5), 1000, 1, weight=gaussian(0.01))
    return net.global_pool("pool10", net.relu("relu_conv10", x), AVE)


_SQUEEZENET = ("SqueezeNet_v1.1", "SqueezeNet 1.1", _squeezenet, 227)


def squeezenet_train_val() -> NetText:
    return _train_val(*_SQUEEZENET, batch=32)


def squeezenet_deploy() -> NetText:
    return _deploy(*_SQUEEZENET)


# Blocks and inner width of stages 2 to 5; a block's output is four times as wide.
RESNET_STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))


def _resnet50(net: NetText) -> str:
    def conv_norm(name: str, x: str, outputs: int, kernel: int, stride: int = 1) -> str:
        fill = partial(net.conv, weight=MSRA, bias=None)
        x = fill(f"res{name}", x, outputs, kernel, pad=kernel // 2, stride=stride)
        return net.batch_norm(f"bn{name}", f"scale{name}", x)

    def block(name: str, x: str, width: int, stride: int, widens: bool) -> str:
        # A stage halves the image in its first 1x1 convolutions; later versions of the net
        # do so in the 3x3 one, which costs 4.1 instead of 3.9 G multiply-adds.
        shortcut = conv_norm(f"{name}_branch1", x, 4 * width, 1, stride) if widens else x
        x = conv_norm(f"{name}_branch2a", x, width, 1, stride)
        x = net.relu(f"res{name}_branch2a_relu", x)
        x = conv_norm(f"{name}_branch2b", x, width, 3)
        x = net.relu(f"res{name}_branch2b_relu", x)
        x = conv_norm(f"{name}_branch2c", x, 4 * width, 1)
        x = net.layer(f"res{name}", "Eltwise", [shortcut, x])
        return net.relu(f"res{name}_relu", x)

    # The published weights have a bias here alone, though the normalization undoes it.
    x = net.conv("conv1", "data", 64, 7, pad=3, stride=2, weight=MSRA, bias=constant(0))
    x = net.relu("conv1_relu", net.batch_norm("bn_conv1", "scale_conv1", x))
    x = net.pool("pool1", x, MAX, 3, 2)
    for stage, (blocks, width) in enumerate(RESNET_STAGES, 2):
        for i in range(blocks):
            stride = 2 if i == 0 and stage > 2 else 1
            x = block(f"{stage}{'abcdef'[i]}", x, width, stride, widens=i == 0)
    x = net.pool("pool5", x, AVE, 7, 1)
    return net.fc("fc1000", x, 1000, weight=MSRA, bias=constant(0))


_RESNET = ("ResNet-50", "ResNet-50", _resnet50, 224)


def resnet50_train_val() -> NetText:
    return _train_val(*_RESNET, batch=256)


def resnet50_deploy() -> NetText:
    return _deploy(*_RESNET)


# Name, outputs and stride of each depthwise separable pair.
SEPARABLE = (
    ("2_1", 64, 1),
    ("2_2", 128, 2),
    ("3_1", 128, 1),
    ("3_2", 256, 2),
    ("4_1", 256, 1),
    ("4_2", 512, 2),
    *((f"5_{i}", 512, 1) for i in range(1, 6)),
    ("5_6", 1024, 2),
    ("6", 1024, 1),
)
MOBILENET_MEAN, MOBILENET_SCALE = (103.94, 116.78, 123.68), 0.017
NO_DECAY = {"lr_mult": 1, "decay_mult": 0}


def _mobilenet(net: NetText) -> str:
    def conv(
        name: str, relu: str, x: str, outputs: int, kernel: int, stride: int, group: int = 1
    ) -> str:
        fill = partial(net.conv, weight=MSRA, bias=None, pad=kernel // 2)
        x = fill(name, x, outputs, kernel, stride=stride, group=group)
        return net.relu(relu, net.batch_norm(f"{name}/bn", f"{name}/scale", x, (NO_DECAY,) * 2))

    x, channels = conv("conv1", "relu1", "data", 32, 3, 2), 32
    for name, outputs, stride in SEPARABLE:
        x = conv(f"conv{name}/dw", f"relu{name}/dw", x, channels, 3, stride, group=channels)
        x = conv(f"conv{name}/sep", f"relu{name}/sep", x, outputs, 1, 1)
        channels = outputs
    x = net.global_pool("pool6", x, AVE)
    return net.conv("fc7", x, 1000, 1, weight=MSRA, bias=constant(0))


def mobilenet_train_val() -> NetText:
    batch = 256
    net = NetText("MOBILENET", f"MobileNet v1: training and testing, global batch {batch}.")
    imagenet.data(net, 224, batch, MOBILENET_MEAN, MOBILENET_SCALE)
    return _heads(net, _mobilenet(net))


def mobilenet_deploy() -> NetText:
    return _deploy("MOBILENET", "MobileNet v1", _mobilenet, 224)

"""Every net under models/ is what its generator writes, wires up and has its published size."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

from pycaffe_fire.schema import read_net
from tests.models.model_shapes import MODELS, TEST, TRAIN, layers_in, trace

# Of the classifiers: one image, and the number of learned values as published (without heads).
SIZES = {
    "lenet": ((1, 28, 28), 431080),
    "cifar10_quick": ((3, 32, 32), 145578),
    "cifar10_full": ((3, 32, 32), 89578),
    "caffenet": ((3, 227, 227), 60965224),
    "alexnet": ((3, 227, 227), 60965224),
    "nin": ((3, 227, 227), 7595176),
    "googlenet": ((3, 224, 224), 6998552),
    "vgg16": ((3, 224, 224), 138357544),
    "squeezenet_v1.1": ((3, 227, 227), 1235496),
    "resnet50": ((3, 224, 224), 25557032 + 64),  # the Caffe version's conv1 has a bias
    "mobilenet_v1": ((3, 224, 224), 4231976),
}
NETS = sorted(
    path
    for path in MODELS.glob("*/*.prototxt")
    if path.parent.name in SIZES and not path.stem.startswith("solver")
)
TRAIN_VALS = [path for path in NETS if path.stem.startswith("train_val")]
DETECTORS = {"ssd_mini", "ssd300_vgg16"}  # see test_detection_models.py


def label(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def test_checked_in_text_is_what_the_generator_writes() -> None:
    command = [sys.executable, str(MODELS.parent / "tools" / "make_models.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_check_finds_a_difference_and_writing_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(MODELS.parent / "tools")
    import make_models

    monkeypatch.setattr(make_models, "MODELS", tmp_path / "models")
    changed = tmp_path / "models" / "nin" / "deploy.prototxt"
    assert make_models.main([]) == 0
    good = changed.read_text()
    changed.write_text(good + "\n")
    capsys.readouterr()

    assert make_models.main(["--check"]) == 1
    assert capsys.readouterr().out == f"{Path('models/nin/deploy.prototxt')} differs\n"
    assert changed.read_text() != good, "--check must write nothing"
    assert make_models.main([]) == 0
    assert changed.read_text() == good
    assert sorted(p.name for p in changed.parent.iterdir() if p.is_file()) == sorted(
        p.name for p in (MODELS / "nin").glob("*.prototxt")
    ), "no temporary files left"


def test_every_model_has_its_files() -> None:
    wanted = {"solver.prototxt", "train_val.prototxt", "deploy.prototxt", "README.md"}
    names = {path.name for path in MODELS.iterdir() if path.is_dir()}
    assert names == SIZES.keys() | DETECTORS
    missing = {name: wanted - {p.name for p in (MODELS / name).iterdir()} for name in names}
    assert missing == dict.fromkeys(names, set())


@pytest.mark.parametrize("path", NETS, ids=label)
@pytest.mark.parametrize("phase", [TRAIN, TEST])
def test_layers_wire_up(path: Path, phase: int) -> None:
    net = read_net(path)
    layers = layers_in(net, phase)
    names = [layer.name for layer in layers]
    assert len(names) == len(set(names))
    blobs, _ = trace(net, phase, SIZES[path.parent.name][0])

    consumed = {bottom for layer in layers for bottom in layer.bottom}
    ends = {layer.type for layer in layers if not consumed.issuperset(layer.top)}
    if path.stem == "deploy":
        classes = 10 if blobs["data"][-1] <= 32 else 1000
        assert ends == {"Softmax"}
        assert math.prod(blobs["prob"]) == blobs["prob"][0] == classes
    else:
        assert ends == {"SoftmaxWithLoss"} | ({"Accuracy"} if phase == TEST else set())


@pytest.mark.parametrize("path", TRAIN_VALS, ids=label)
def test_deploy_takes_the_weights_of_train_val(path: Path) -> None:
    data, published = SIZES[path.parent.name]
    _, trained = trace(read_net(path), TRAIN, data)
    _, deployed = trace(read_net(path.with_name("deploy.prototxt")), TEST, data)
    heads = ("loss1/", "loss2/")
    assert [op for op in trained if not op.name.startswith(heads)] == deployed
    assert sum(op.weights for op in deployed) == published


@pytest.mark.parametrize("path", TRAIN_VALS, ids=label)
def test_data_layers_give_both_phases_the_same_images(path: Path) -> None:
    data = [layer for layer in read_net(path).layer if layer.type == "Data"]
    assert [layer.include[0].phase for layer in data] == [TRAIN, TEST]
    train, test = (layer.transform_param for layer in data)
    assert train.crop_size == test.crop_size
    assert (train.scale, train.mean_file, train.mean_value) == (
        test.scale,
        test.mean_file,
        test.mean_value,
    )
    assert not test.mirror


def test_googlenet_heads_and_their_weights() -> None:
    net = read_net(MODELS / "googlenet" / "train_val.prototxt")
    losses = {layer.top[0]: list(layer.loss_weight) for layer in net.layer if layer.loss_weight}
    assert losses == {
        "loss1/loss1": [pytest.approx(0.3)],
        "loss2/loss1": [pytest.approx(0.3)],
        "loss3/loss3": [1],
    }
    dropouts = [
        round(layer.dropout_param.dropout_ratio, 6)
        for layer in net.layer
        if layer.type == "Dropout"
    ]
    assert dropouts == [0.7, 0.7, 0.4]
    blobs, ops = trace(net, TRAIN, (3, 224, 224))
    assert blobs["loss1/ave_pool"] == (512, 4, 4)
    assert blobs["loss2/ave_pool"] == (528, 4, 4)
    assert blobs["pool5/7x7_s1"] == (1024, 1, 1)
    assert sum(op.weights for op in ops) == 13378280


def test_large_batch_nets_differ_in_the_batch_alone() -> None:
    for name, batch in (("nin", 256), ("googlenet", 32)):
        small = read_net(MODELS / name / "train_val.prototxt")
        large = read_net(MODELS / name / "train_val_b1024.prototxt")
        assert small.layer[0].data_param.batch_size == batch
        assert large.layer[0].data_param.batch_size == 1024
        large.layer[0].data_param.batch_size = batch
        assert small == large


def test_resnet_halves_its_images_where_the_published_one_does() -> None:
    net = read_net(MODELS / "resnet50" / "train_val.prototxt")
    blobs, ops = trace(net, TRAIN, (3, 224, 224))
    assert [blobs[name] for name in ("conv1", "pool1", "res2c", "res3d", "res4f", "res5c")] == [
        (64, 112, 112), (64, 56, 56), (256, 56, 56), (512, 28, 28), (1024, 14, 14), (2048, 7, 7),
    ]  # fmt: skip
    assert blobs["res3a_branch2a"] == (128, 28, 28), "the 1x1 convolution strides, not the 3x3"
    layers = {layer.name: layer for layer in net.layer}
    assert list(layers["res2a"].bottom) == ["res2a_branch1", "res2a_branch2c"]
    assert list(layers["res4f"].bottom) == ["res4e", "res4f_branch2c"]
    assert "res5c_branch1" not in layers
    assert sum(op.statistics > 0 for op in ops) == 53
    assert sum(op.weights + op.statistics for op in ops) == 25610269


def test_every_batch_norm_is_in_place_and_has_its_scale() -> None:
    for model, norms in (("resnet50", 53), ("mobilenet_v1", 27)):
        layers = layers_in(read_net(MODELS / model / "train_val.prototxt"), TRAIN)
        found = [i for i, layer in enumerate(layers) if layer.type == "BatchNorm"]
        assert len(found) == norms
        for i in found:
            conv, norm, scale = layers[i - 1 : i + 2]
            assert (conv.type, scale.type) == ("Convolution", "Scale")
            assert scale.scale_param.bias_term
            assert list(norm.bottom) == list(norm.top) == list(scale.top) == list(conv.top)
            assert not norm.batch_norm_param.HasField("use_global_stats")


def test_mobilenet_alternates_depthwise_and_pointwise() -> None:
    net = read_net(MODELS / "mobilenet_v1" / "train_val.prototxt")
    blobs, _ = trace(net, TRAIN, (3, 224, 224))
    convolutions = [layer for layer in net.layer if layer.type == "Convolution"]
    assert [layer.name for layer in convolutions[1:5]] == [
        "conv2_1/dw", "conv2_1/sep", "conv2_2/dw", "conv2_2/sep",
    ]  # fmt: skip
    for layer in convolutions[1:-1]:
        p = layer.convolution_param
        depthwise = layer.name.endswith("/dw")
        assert p.group == (blobs[layer.bottom[0]][0] if depthwise else 1)
        assert p.kernel_size[0] == (3 if depthwise else 1)
    assert blobs["conv6/sep"] == (1024, 7, 7)
    transform = net.layer[0].transform_param
    assert list(transform.mean_value) == pytest.approx([103.94, 116.78, 123.68])
    assert transform.scale == pytest.approx(0.017)

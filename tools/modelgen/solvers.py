"""The solver settings of every net, as published or as the FireCaffe paper used them."""

from __future__ import annotations

from typing import Any

from modelgen.imagenet import TEST_BATCH
from modelgen.prototxt import Enum, comment, render

IMAGENET_TRAIN = 1281167
IMAGENET_VAL = 50000


def iterations(epochs: int, batch: int) -> int:
    """Iterations nearest to so many passes over ImageNet's training images."""
    return round(epochs * IMAGENET_TRAIN / batch)


def solver(model: str, about: str, *, net: str = "train_val", run: str = "", **fields: Any) -> str:
    """A solver of models/<model>; `run` names the snapshots where it is not the model's name."""
    tail = {"snapshot_prefix": f"runs/{model}/{run or model}", "solver_mode": Enum("GPU")}
    return comment(about) + render({"net": f"models/{model}/{net}.prototxt"} | fields | tail)


def lenet() -> str:
    return solver(
        "lenet",
        "LeNet on the digits set: three passes over its 20,000 images.",
        test_iter=40,
        test_interval=250,
        base_lr=0.01,
        momentum=0.9,
        weight_decay=0.0005,
        lr_policy="inv",
        gamma=0.0001,
        power=0.75,
        display=100,
        max_iter=1000,
        snapshot=500,
        random_seed=1,
    )


def _cifar10(model: str, about: str, base_lr: float, max_iter: int, **every: int) -> str:
    return solver(
        model,
        about,
        test_iter=100,
        test_interval=every["test"],
        base_lr=base_lr,
        momentum=0.9,
        weight_decay=0.004,
        lr_policy="fixed",
        display=every["display"],
        max_iter=max_iter,
        snapshot=every["snapshot"],
    )


def cifar10_quick() -> dict[str, str]:
    every = {"test": 500, "display": 100}
    name = "cifar10_quick"
    return {
        "solver": _cifar10(name, "First stage: 8 epochs.", 0.001, 4000, snapshot=4000, **every),
        "solver_lr1": _cifar10(
            name, "Second stage: 2 epochs at a tenth.", 0.0001, 5000, snapshot=5000, **every
        ),
    }


def cifar10_full() -> dict[str, str]:
    every = {"test": 1000, "display": 200}
    name = "cifar10_full"
    return {
        "solver": _cifar10(name, "First stage: 120 epochs.", 0.001, 60000, snapshot=10000, **every),
        "solver_lr1": _cifar10(
            name, "Second stage: 10 epochs at a tenth.", 0.0001, 65000, snapshot=5000, **every
        ),
        "solver_lr2": _cifar10(
            name, "Third stage: 10 epochs at a hundredth.", 1e-05, 70000, snapshot=5000, **every
        ),
    }


def krizhevsky(model: str, about: str) -> str:
    """CaffeNet's and AlexNet's settings: 90 epochs, a tenth of the rate every 20."""
    return solver(
        model,
        about,
        test_iter=IMAGENET_VAL // TEST_BATCH,
        test_interval=1000,
        base_lr=0.01,
        lr_policy="step",
        gamma=0.1,
        stepsize=100000,
        display=20,
        average_loss=20,
        max_iter=450000,
        momentum=0.9,
        weight_decay=0.0005,
        snapshot=10000,
    )


def nin(batch: int, about: str, **fields: Any) -> str:
    """47 epochs with the rate proportional to the batch, a tenth after 10/22 and 20/22 of them."""
    max_iter = iterations(47, batch)
    return solver(
        "nin",
        about,
        test_iter=IMAGENET_VAL // TEST_BATCH,
        test_interval=1000,
        base_lr=fields.pop("base_lr", 0.01 * batch / 256),
        lr_policy="step",
        gamma=0.1,
        stepsize=max_iter * 10 // 22,
        display=20,
        average_loss=20,
        max_iter=max_iter,
        momentum=0.9,
        weight_decay=0.0005,
        **fields,
    )


def nin_sweep() -> dict[str, str]:
    """Rates around the one that is proportional to the batch, at batch 1024."""
    return {
        f"sweep/lr_{rate:g}": nin(
            1024,
            f"Network-in-Network at batch 1024 with rate {rate:g}: one of a sweep (fire_sweep).",
            net="train_val_b1024",
            run=f"sweep/lr_{rate:g}",
            base_lr=rate,
            snapshot=1000,
            random_seed=42,
        )
        for rate in (0.01, 0.02, 0.04, 0.08, 0.16)
    }


def googlenet_sweep() -> dict[str, str]:
    """The rates that the FireCaffe paper tried at batch 1024."""
    return {
        f"sweep/lr_{rate:g}": googlenet(
            1024,
            f"GoogLeNet at batch 1024 with rate {rate:g}: one of the paper's sweep (fire_sweep).",
            epochs=72,
            base_lr=rate,
            test_interval=1000,
            net="train_val_b1024",
            run=f"sweep/lr_{rate:g}",
            snapshot=1000,
            random_seed=42,
        )
        for rate in (0.02, 0.04, 0.08, 0.16, 0.32)
    }


def googlenet(
    batch: int, about: str, epochs: int, base_lr: float, test_interval: int, **fields: Any
) -> str:
    return solver(
        "googlenet",
        about,
        test_iter=IMAGENET_VAL // TEST_BATCH,
        test_interval=test_interval,
        test_initialization=False,
        display=40,
        average_loss=40,
        base_lr=base_lr,
        lr_policy="poly",
        power=0.5,
        max_iter=iterations(epochs, batch),
        momentum=0.9,
        weight_decay=0.0002,
        **fields,
    )


def _deep(model: str, about: str, **fields: Any) -> str:
    return solver(
        model,
        about,
        test_iter=IMAGENET_VAL // TEST_BATCH,
        test_interval=5000,
        test_initialization=False,
        momentum=0.9,
        snapshot=5000,
        **fields,
    )


def vgg16() -> str:
    return _deep(
        "vgg16",
        "VGG-16: 74 epochs.",
        display=20,
        average_loss=20,
        base_lr=0.01,
        lr_policy="step",
        gamma=0.1,
        stepsize=100000,
        max_iter=370000,
        weight_decay=0.0005,
    )


def squeezenet() -> str:
    return _deep(
        "squeezenet_v1.1",
        "SqueezeNet 1.1: 68 epochs; 16 passes over a batch of 32 make one of 512.",
        display=40,
        average_loss=40,
        base_lr=0.04,
        lr_policy="poly",
        power=1,
        iter_size=16,
        max_iter=170000,
        weight_decay=0.0002,
        random_seed=42,
    )


def resnet50() -> str:
    return _deep(
        "resnet50",
        "ResNet-50: 120 epochs.",
        display=20,
        average_loss=20,
        base_lr=0.1,
        lr_policy="step",
        gamma=0.1,
        stepsize=150000,
        max_iter=600000,
        weight_decay=0.0001,
    )


def mobilenet() -> str:
    return _deep(
        "mobilenet_v1",
        "MobileNet v1: 100 epochs.",
        display=20,
        average_loss=20,
        base_lr=0.1,
        lr_policy="poly",
        power=1,
        max_iter=500000,
        weight_decay=0.0001,
    )


def ssd_mini() -> str:
    return solver(
        "ssd_mini",
        "A small SSD on the shapes: six passes over their 4,000 images.",
        test_iter=40,
        test_interval=500,
        test_initialization=False,
        eval_type="detection",
        ap_version="11point",
        type="Adam",
        base_lr=0.002,
        momentum=0.9,
        momentum2=0.999,
        weight_decay=0.0001,
        lr_policy="multistep",
        gamma=0.1,
        stepvalue=1200,
        display=50,
        max_iter=1500,
        snapshot=1500,
        random_seed=1,
    )


def ssd300() -> str:
    return solver(
        "ssd300_vgg16",
        "SSD300 on VOC 2007 and 2012 trainval: 120,000 iterations of 32 images.",
        test_iter=619,
        test_interval=10000,
        test_initialization=False,
        eval_type="detection",
        ap_version="11point",
        base_lr=0.001,
        momentum=0.9,
        weight_decay=0.0005,
        lr_policy="multistep",
        gamma=0.1,
        stepvalue=[80000, 100000, 120000],
        display=10,
        average_loss=10,
        max_iter=120000,
        snapshot=10000,
    )

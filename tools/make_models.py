"""Writes every prototxt under models/.

python tools/make_models.py            rewrite them
python tools/make_models.py --check    exit 1 if one differs from what would be written
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from modelgen import deep, detection, imagenet, small, solvers

MODELS = Path(__file__).resolve().parent.parent / "models"


def nin() -> dict[str, str]:
    large = {"net": "train_val_b1024", "run": "nin_b1024"}
    return {
        "solver": solvers.nin(256, "Network-in-Network, batch 256: 47 epochs.", snapshot=10000),
        "solver_b1024": solvers.nin(
            1024,
            "Network-in-Network as FireCaffe trained it on 128 GPUs: batch 1024, 47 epochs.",
            snapshot=1000,
            random_seed=42,
            **large,
        ),
        "train_val": str(imagenet.nin_train_val(256)),
        "train_val_b1024": str(imagenet.nin_train_val(1024)),
        "deploy": str(imagenet.nin_deploy()),
        **solvers.nin_sweep(),
    }


def googlenet() -> dict[str, str]:
    large = {"net": "train_val_b1024", "run": "googlenet_b1024"}
    return {
        "solver": solvers.googlenet(
            32,
            "GoogLeNet, batch 32: 64 epochs.",
            epochs=64,
            base_lr=0.01,
            test_interval=4000,
            snapshot=40000,
        ),
        "solver_b1024": solvers.googlenet(
            1024,
            "GoogLeNet as FireCaffe trained it on 128 GPUs: batch 1024, 72 epochs.",
            epochs=72,
            base_lr=0.08,
            test_interval=1000,
            snapshot=1000,
            random_seed=42,
            **large,
        ),
        "train_val": str(imagenet.googlenet_train_val(32)),
        "train_val_b1024": str(imagenet.googlenet_train_val(1024)),
        "deploy": str(imagenet.googlenet_deploy()),
        **solvers.googlenet_sweep(),
    }


def models() -> dict[str, dict[str, str]]:
    """Model to file (without its ending) to text."""
    return {
        "lenet": {
            "solver": solvers.lenet(),
            "train_val": str(small.lenet_train_val()),
            "deploy": str(small.lenet_deploy()),
        },
        "cifar10_quick": {
            **solvers.cifar10_quick(),
            "train_val": str(small.quick_train_val()),
            "deploy": str(small.quick_deploy()),
        },
        "cifar10_full": {
            **solvers.cifar10_full(),
            "train_val": str(small.full_train_val()),
            "deploy": str(small.full_deploy()),
        },
        "caffenet": {
            "solver": solvers.krizhevsky("caffenet", "BVLC's reference CaffeNet: 90 epochs."),
            "train_val": str(imagenet.caffenet_train_val()),
            "deploy": str(imagenet.caffenet_deploy()),
        },
        "alexnet": {
            "solver": solvers.krizhevsky("alexnet", "BVLC's AlexNet: 90 epochs."),
            "train_val": str(imagenet.alexnet_train_val()),
            "deploy": str(imagenet.alexnet_deploy()),
        },
        "nin": nin(),
        "googlenet": googlenet(),
        "vgg16": {
            "solver": solvers.vgg16(),
            "train_val": str(deep.vgg16_train_val()),
            "deploy": str(deep.vgg16_deploy()),
        },
        "squeezenet_v1.1": {
            "solver": solvers.squeezenet(),
            "train_val": str(deep.squeezenet_train_val()),
            "deploy": str(deep.squeezenet_deploy()),
        },
        "resnet50": {
            "solver": solvers.resnet50(),
            "train_val": str(deep.resnet50_train_val()),
            "deploy": str(deep.resnet50_deploy()),
        },
        "mobilenet_v1": {
            "solver": solvers.mobilenet(),
            "train_val": str(deep.mobilenet_train_val()),
            "deploy": str(deep.mobilenet_deploy()),
        },
        "ssd_mini": {
            "solver": solvers.ssd_mini(),
            "train_val": detection.mini_train_val(),
            "deploy": detection.mini_deploy(),
        },
        "ssd300_vgg16": {
            "solver": solvers.ssd300(),
            "train_val": detection.ssd300_train_val(),
            "deploy": detection.ssd300_deploy(),
        },
    }


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write every prototxt under models/.")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 on a difference"
    )
    check: bool = parser.parse_args(arguments).check
    differing = [
        (path, text)
        for model, files in models().items()
        for name, text in files.items()
        if not (path := MODELS / model / f"{name}.prototxt").exists()
        or path.read_text(encoding="utf-8") != text
    ]
    for path, text in differing:
        print(path.relative_to(MODELS.parent), "differs" if check else "written")
        if not check:
            write(path, text)
    if check and differing:
        print("run python tools/make_models.py", file=sys.stderr)
    return 1 if check and differing else 0


if __name__ == "__main__":
    sys.exit(main())

"""Scripts as Caffe's users wrote them run as they are; each asserts what it should find."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pycaffe.cases import DROPIN

SCRIPTS = Path(__file__).parents[2] / "examples"
ENDINGS = {
    "net_surgery": "surgery done",
    "feature_extraction": "features (7, 6, 9, 9)",
    "finetune": "fine-tuned to",
    "custom_loop": "accuracies",
    "filter_visualisation": "images drawn",
    "fully_convolutional": "map of classes (5, 5)",
    "siamese": "siamese loss",
    "lstm": "lstm loss",
    "crnn": "crnn loss",
    "fcn": "fcn loss",
    "ssd": "ssd loss",
}
SHORT = {  # whole trainings take minutes
    "crnn": ["--rows", "320", "--iterations", "16"],
    "fcn": ["--images", "48", "--iterations", "12"],
    "ssd": ["--images", "40", "--iterations", "12"],
}


def use_one_core() -> None:
    """Threads of small nets that wait for each other take very long on a busy machine."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {random.choice(sorted(os.sched_getaffinity(0)))})


@pytest.mark.parametrize("name", ENDINGS)
def test_script(name: str, here: Path) -> None:
    path = os.pathsep.join([str(DROPIN.parent.parent), str(DROPIN)])
    done = subprocess.run(
        [sys.executable, SCRIPTS / f"{name}.py", *SHORT.get(name, [])], cwd=here, timeout=300,
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
        preexec_fn=use_one_core,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith(ENDINGS[name])

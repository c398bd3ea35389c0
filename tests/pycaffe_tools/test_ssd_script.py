"""A script in the manner of ssd_pascal.py builds SSD300's nets and trains."""

from __future__ import annotations

import os
import subprocess
import sys
from math import isfinite
from pathlib import Path
from typing import Any

import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.data import shapes
from tests.pycaffe.cases import DROPIN
from tests.pycaffe.test_scripts import use_one_core

SCRIPT = Path(__file__).parent / "ssd_script.py"
SOURCES = ["conv4_3_norm", "fc7", "conv6_2", "conv7_2", "conv8_2", "conv9_2"]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder after the script, and what the script printed."""
    folder = tmp_path_factory.mktemp("ssd")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "SPLITS", {"train": 4, "test": 2})
        shapes.make_shapes(folder)
    items = (f'item {{ name: "{name}" label: {i} }}' for i, name in enumerate(shapes.NAMES))
    (folder / "labelmap.prototxt").write_text("\n".join(items))
    (folder / "test_name_size.txt").write_text("a 96 96\nb 96 96\n")
    path = os.pathsep.join([str(DROPIN.parent.parent), str(DROPIN)])
    done = subprocess.run(
        [sys.executable, SCRIPT], cwd=folder, timeout=300, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path}, preexec_fn=use_one_core,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder, done.stdout + done.stderr


def read(folder: Path, name: str) -> dict[str, Any]:
    return {layer.name: layer for layer in schema.read_net(folder / name).layer}


def test_the_nets_have_ssds_layers(project: tuple[Path, str]) -> None:
    folder = project[0]
    train, test, deploy = (read(folder, f"{n}.prototxt") for n in ("train", "test", "deploy"))
    ends = ["", "_perm", "_flat"]
    heads = [f"{s}_mbox_{kind}{end}" for s in SOURCES for kind in ("loc", "conf") for end in ends]
    assert set(heads) | {f"{s}_mbox_priorbox" for s in SOURCES} <= set(train)
    assert [n for n in train if n.startswith("mbox")] == [
        "mbox_loc", "mbox_conf", "mbox_priorbox", "mbox_loss"
    ]  # fmt: skip
    assert list(test)[-5:] == [
        "mbox_conf_reshape", "mbox_conf_softmax", "mbox_conf_flatten", "detection_out",
        "detection_eval",
    ]  # fmt: skip
    assert list(deploy) == ["input", *list(test)[1:-1]]
    assert (
        train["data"]
        .annotated_data_param.batch_sampler[6]
        .sample_constraint.HasField("max_jaccard_overlap")
    )
    fc6 = train["fc6"].convolution_param
    assert (fc6.num_output, list(fc6.dilation), list(fc6.pad)) == (1024, [6], [6])
    assert list(train["mbox_loss"].propagate_down) == [True, True, False, False]
    boxes = train["conv9_2_mbox_priorbox"].prior_box_param
    assert (list(boxes.min_size), list(boxes.max_size), boxes.step) == ([264], [315], 300)


def test_the_deployed_net_predicts_8732_boxes(project: tuple[Path, str]) -> None:
    param = schema.read_net(project[0] / "deploy.prototxt")
    for layer in param.layer:
        if layer.type == "Convolution" and "mbox" not in layer.name:
            layer.convolution_param.num_output //= 32
        layer.detection_output_param.ClearField("save_output_param")
    net = caffe.Net(param, caffe.TEST)
    assert net.blobs["mbox_priorbox"].shape == (1, 2, 4 * 8732)
    assert net.blobs["mbox_conf"].shape == (1, 5 * 8732)


def test_a_narrow_net_is_tested_and_trains_a_step(project: tuple[Path, str]) -> None:
    folder, printed = project
    loss = float(printed.partition("loss ")[2].split()[0])
    assert isfinite(loss) and loss > 0
    assert "Test net output #0: detection_eval = " in printed
    assert len(list((folder / "results").glob("comp4_det_test_*.txt"))) == 4

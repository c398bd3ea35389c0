"""fire_train --weights and --ignore-mismatch as a user meets them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pycaffe_fire import schema
from pycaffe_fire.cli.fire_train import main
from tests.cli.runs import make_run


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_run(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(*arguments: str) -> int:
    return main(["--solver", "solver.prototxt", "--iterations", "1", *arguments])


def widen(net: Path) -> None:
    """Another number of classes for the last layer."""
    param = schema.read_net(str(net))
    (last,) = (layer for layer in param.layer if layer.type == "InnerProduct")
    last.inner_product_param.num_output += 2
    net.write_text(schema.to_text(param))


def test_another_number_of_classes(run: Path, capsys: Any) -> None:
    widen(run / "net.prototxt")
    assert train("--weights", "init.caffemodel") == 1
    said = capsys.readouterr().err
    assert 'init.caffemodel: layer "ip" blob 0: [' in said and "--ignore-mismatch" in said
    assert "Traceback" not in said
    assert train("--weights", "init.caffemodel", "--ignore-mismatch") == 0
    said = capsys.readouterr().err
    assert 'init.caffemodel: layer "ip" blob 0: [' in said and "left out" in said


def test_weights_named_in_the_solver(run: Path, capsys: Any) -> None:
    widen(run / "net.prototxt")
    with open("solver.prototxt", "a") as file:
        file.write('\nweights: "init.caffemodel"')
    assert train() == 1
    assert 'layer "ip" blob 0' in capsys.readouterr().err
    assert train("--ignore-mismatch") == 0


def test_a_state_for_weights_and_weights_for_a_state(run: Path, capsys: Any) -> None:
    assert train() == 0
    capsys.readouterr()
    assert train("--weights", "snap_iter_1.solverstate") == 1
    assert "snap_iter_1.solverstate is a solver state" in capsys.readouterr().err
    assert train("--snapshot", "snap_iter_1.caffemodel") == 1
    said = capsys.readouterr().err
    assert "snap_iter_1.caffemodel holds weights" in said
    assert "or resume from snap_iter_1.solverstate" in said

"""Models that came along: listed, copied, found by their path; hints for what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from pycaffe_fire import installation, schema
from pycaffe_fire.cli import fire_model, fire_train
from pycaffe_fire.errors import FireError
from pycaffe_fire.installation import checkout, find_model_file, install_hint, models_folder
from pycaffe_fire.solver import read_param
from pycaffe_fire.solver.nets import find_train_net

SOLVER = "models/lenet/solver.prototxt"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    installation._say_once.cache_clear()
    return tmp_path


def test_a_path_that_names_a_model_means_the_one_that_came_along(
    caplog: pytest.LogCaptureFixture,
) -> None:
    param = read_param(SOLVER)
    assert param.net == "models/lenet/train_val.prototxt"
    assert find_train_net(param, schema.NetState()).param.name == "LeNet"
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        f"{name} is not here: using the one that came with pycaffe_fire, {models_folder() / rest}"
        for name, rest in ((SOLVER, "lenet/solver.prototxt"),
                           ("models/lenet/train_val.prototxt", "lenet/train_val.prototxt"))
    ]  # fmt: skip


@pytest.mark.parametrize("path", ["models/lenet/other.prototxt", "my/lenet/solver.prototxt",
                                  "../models/lenet/solver.prototxt", "models"])  # fmt: skip
def test_other_paths_stay_as_they_are(path: str) -> None:
    assert find_model_file(path) == path


def test_a_file_of_ones_own_goes_first(elsewhere: Path, caplog: pytest.LogCaptureFixture) -> None:
    (elsewhere / "models" / "lenet").mkdir(parents=True)
    (elsewhere / SOLVER).write_text('net: "mine.prototxt"')
    assert schema.read_solver(SOLVER).net == "mine.prototxt"
    assert not caplog.records


def test_list_and_copy(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fire_model.main(["list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert "lenet            LeNet on 28x28 grey digits" in listed
    assert [line.split()[0] for line in listed] == installation.model_names()
    assert fire_model.main(["copy", "cifar10_quick", "my"]) == 0
    copied = elsewhere / "my" / "cifar10_quick"
    assert str(Path("my/cifar10_quick/solver_lr1.prototxt")) in capsys.readouterr().out
    assert read_param(str(copied / "solver.prototxt")).net == "my/cifar10_quick/train_val.prototxt"


def test_a_copy_overwrites_nothing_and_names_are_suggested(
    elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fire_model.main(["copy", "lenett", "my"]) == 1
    assert 'no model "lenett" came along (did you mean "lenet"?)' in capsys.readouterr().err
    (elsewhere / "my" / "lenet").mkdir(parents=True)
    assert fire_model.main(["copy", "lenet", "my"]) == 1
    assert "my/lenet: is there already" in capsys.readouterr().err


def test_hints_name_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    root = checkout()
    assert root is not None
    assert install_hint("mpi") == f"pip install -e '{root}[mpi]'"
    monkeypatch.chdir(root)
    assert install_hint("mpi") == "pip install -e '.[mpi]'"


def test_flags_that_need_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert fire_train.main([]) == 1
    assert "give --solver FILE" in capsys.readouterr().err
    assert fire_train.main(["--solver", SOLVER, "--out", "x"]) == 1
    assert "--out needs --demo lenet" in capsys.readouterr().err


def test_a_model_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FireError, match="no such file"):
        schema.read_net("models/lenet/nothing.prototxt")

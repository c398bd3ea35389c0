"""The wheel and the sdist, installed outside the checkout: models, the demo, nothing left."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
from collections.abc import Sequence
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
BUILD = "from setuptools import build_meta as b; b.build_{}({!r})"


def run(command: Sequence[str | Path], folder: Path) -> str:
    """Output of a command that sees nothing of this checkout."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    # Ours, so that kernels are compiled once; beside the environment that is to stay clean.
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, capture_output=True, text=True, timeout=500,
        env={**environment, "OMP_WAIT_POLICY": "passive"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def build(what: str, source: Path, out: Path) -> Path:
    """A wheel or an sdist of a source tree, as pip asks setuptools for it."""
    out.mkdir()
    run([sys.executable, "-c", BUILD.format(what, str(out))], source)
    return next(out.iterdir())


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is in the checkout and of nothing that was built there."""
    target = tmp_path_factory.mktemp("source")
    for name in (
        "pycaffe_fire", "models", "proto", "pyproject.toml", "setup.py", "MANIFEST.in", "README.md",
        "LICENSE", "CHANGELOG.md",
    ):  # fmt: skip
        run(["cp", "-r", ROOT / name, target / name], target)
    return target


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is built from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    sdist = build("sdist", source, folder / "sdist")
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
        archive.extractall(folder / "unpacked")
    assert any(name.endswith("/models/lenet/solver.prototxt") for name in names)
    return build("wheel", next((folder / "unpacked").iterdir()), folder / "wheel")


def files(folder: Path) -> set[str]:
    found = (path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
    return {str(path) for path in found}


def test_the_wheel_holds_the_models_inside_the_package(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    models = [name for name in names if name.endswith(("solver.prototxt", "README.md"))]
    assert "pycaffe_fire/models/squeezenet_v1.1/solver.prototxt" in models
    assert all(name.startswith("pycaffe_fire/") for name in models)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"pycaffe_fire", "caffe"}


def lend_packages(place: Path) -> None:
    """Let an environment see the packages of this one, but not the checkout that is installed here:
    its finder is in a .pth file, which counts only in a place for packages of one's own."""
    (target,) = place.glob("lib/*/site-packages")
    paths = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    (target / "lent.pth").write_text("".join(f"{path}\n" for path in sorted(paths)))


def test_its_user_trains_the_demo_and_uninstalls_all(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "environment"
    venv.create(place, system_site_packages=True)
    lend_packages(place)
    python, bin_folder = place / "bin" / "python", place / "bin"
    work = tmp_path / "work"
    work.mkdir()
    pip: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    before = files(place)
    alone = ["--no-index", "--no-deps", "--no-warn-conflicts", "--force-reinstall"]
    run([*pip, "install", *alone, wheel], work)

    shown = run([bin_folder / "fire_train", "--demo", "lenet", "--out", "try", "--iterations", "2",
                 "--quiet"], work)  # fmt: skip
    assert "models/lenet/solver.prototxt is not here: using the one that came with" in shown
    assert "accuracy = " in shown
    assert (work / "try" / "runs" / "lenet" / "lenet_iter_2.caffemodel").exists()
    assert {path.name for path in work.iterdir()} == {"try"}

    hint = run([python, "-c", "from pycaffe_fire import installation as i; "
                "assert 'environment' in i.__file__; h = i.install_hint; "
                "print(h('mpi'), h('gpu'), sep='; ')"], work)  # fmt: skip
    assert hint.startswith("pip install mpi4py mpich; pip install 'cupy-cuda13x[ctk]' nvidia-cudnn")

    run([*pip, "uninstall", "--yes", "pycaffe_fire"], work)
    assert files(place) == before

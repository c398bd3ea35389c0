"""The wheel and the sdist, installed outside the checkout: kernels, models, the demo."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from collections.abc import Sequence
from pathlib import Path
from zipfile import ZipFile

import pytest

from pycaffe_fire.backend.cpu.native import build as native

ROOT = Path(__file__).parents[2]
NATIVE = Path("pycaffe_fire", "backend", "cpu", "native")
BACKEND = "import sys; sys.path.insert(0, 'tools/packaging'); import fire_backend as b; "
BUILD = BACKEND + "b.build_{}({!r})"


def run(command: Sequence[str | Path], folder: Path, **variables: str) -> str:
    """Output of a command that sees nothing of this checkout."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    # Ours, so that kernels are compiled once; beside the environment that is to stay clean.
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, capture_output=True, text=True, timeout=500,
        env={**environment, "OMP_WAIT_POLICY": "passive", **variables},
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
        "pycaffe_fire", "models", "proto", "tools", "pyproject.toml", "setup.py", "MANIFEST.in",
        "README.md", "LICENSE", "CHANGELOG.md",
    ):  # fmt: skip
        run(["cp", "-r", ROOT / name, target / name], target)
    for built in (target / NATIVE).glob("libfire_*"):
        built.unlink()
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
    assert any(name.endswith("/native/update.c") for name in names)
    assert not any("libfire" in name for name in names)
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


def test_the_wheel_holds_compiled_kernels(wheel: Path) -> None:
    """For this platform and any version of Python; it needs no sources."""
    assert re.fullmatch(r"pycaffe_fire-[\d.]+-py3-none-(?!any)\w+\.whl", wheel.name)
    names = [n for n in ZipFile(wheel).namelist() if n.startswith(NATIVE.as_posix())]
    target = native.this_machine()
    compiled = {f"{NATIVE.as_posix()}/{target.library(v.isa)}" for v in target.variants}
    assert compiled <= set(names)
    assert not [name for name in names if name.endswith((".c", ".h", ".o"))]


REQUIRES = BACKEND + "print(b.get_requires_for_build_wheel(), b.get_requires_for_build_editable())"
HIDDEN = "import importlib.util as u; u.find_spec = lambda name: None; "


def test_a_build_without_a_compiler_asks_for_one(source: Path, tmp_path: Path) -> None:
    assert "['ziglang'] ['ziglang']" in run(
        [sys.executable, "-c", HIDDEN + REQUIRES], source, PATH=str(tmp_path), CC=""
    )
    if shutil.which("cc"):
        assert "[] []" in run([sys.executable, "-c", REQUIRES], source)


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

    isa = run([python, "-c", "from pycaffe_fire.backend.cpu import library; "
               "assert 'environment' in library.__file__; print(library.load().isa)"],
              work)  # fmt: skip
    assert isa.strip() in [variant.isa for variant in native.this_machine().variants]

    hint = run([python, "-c", "from pycaffe_fire import installation as i; "
                "assert 'environment' in i.__file__; h = i.install_hint; "
                "print(h('mpi'), h('gpu'), sep='; ')"], work)  # fmt: skip
    assert hint.startswith("pip install mpi4py mpich; pip install 'cupy-cuda13x[ctk]' nvidia-cudnn")

    run([*pip, "uninstall", "--yes", "pycaffe_fire"], work)
    assert files(place) == before

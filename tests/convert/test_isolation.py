"""A model that ends the library which runs it ends nothing else, and is reported in words."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="conversions from ONNX need the extra `convert`")
pytest.importorskip("onnxruntime", reason="conversions from ONNX need the extra `convert`")

import onnx

from pycaffe_fire.cli.fire_convert import main
from pycaffe_fire.convert import isolation
from pycaffe_fire.convert.isolation import Isolated
from pycaffe_fire.convert.runtime import OnnxRuntime
from pycaffe_fire.errors import ConvertError
from tests.convert.test_from_onnx import array, node, onnx_file

ROOT = Path(__file__).parents[2]
posix = pytest.mark.skipif(sys.platform == "win32", reason="there are no signals to die of")


def model(folder: Path) -> Any:
    return onnx.load(onnx_file(folder / "m.onnx", [node("Relu", "x")]))


def test_a_group_of_zero_ends_a_child_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """onnxruntime 1.31 divides by it; another release may refuse it."""
    broken = node("ConvTranspose", "x w", group=0)
    path = onnx_file(tmp_path / "m.onnx", [broken], {"w": array(4, 1, 3, 3)})
    assert main([str(path), str(tmp_path / "o.prototxt"), str(tmp_path / "o.caffemodel")]) == 1
    said = capsys.readouterr().err
    assert "m.onnx: cannot be run: onnxruntime" in said and "Traceback" not in said
    assert sorted(os.listdir(tmp_path)) == ["m.onnx"]


@posix
@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("SIGFPE", r"died of SIGFPE \(a division by zero\)"),
        ("SIGSEGV", r"died of SIGSEGV \(an access to memory"),
        ("SIGKILL", r"died of SIGKILL \(the system ended it, most likely because memory ran out"),
        ("SIGTERM", "died of SIGTERM while loading"),
    ],
)
def test_the_signal_is_named(tmp_path: Path, name: str, meaning: str) -> None:
    with pytest.raises(ConvertError, match=meaning) as caught, OnnxRuntime() as runtime:
        os.kill(runtime._process._process.pid, getattr(signal, name))
        runtime.open_model(model(tmp_path), {})
    assert "get the file from its source again, or try another release" in str(caught.value)


def test_last_words_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "_code", lambda: "raise SystemExit('no room left')")
    monkeypatch.setattr(isolation._SPARE, "take", lambda: None)
    words = "onnxruntime ended with status 1, saying 'no room left', while loading the model"
    with pytest.raises(ConvertError, match=words), OnnxRuntime() as runtime:
        runtime.open_model(model(tmp_path), {})


def test_results_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    text = onnx.helper.make_node("Cast", ["x"], ["y"], to=onnx.TensorProto.STRING)
    with OnnxRuntime() as runtime:
        runtime.open_model(onnx.load(onnx_file(tmp_path / "m.onnx", [node("Relu", "x")])), {})
        feeds = {"x": np.ones((1, 4, 7, 9), np.float32)}
        assert runtime.run(["y"], feeds)[0].shape == (1, 4, 7, 9)
        made = onnx.load(onnx_file(tmp_path / "m.onnx", [text]))
        made.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.STRING
        runtime.open_model(made, {})
        with pytest.raises(ConvertError, match='"y" is no tensor of numbers'):
            runtime.run(["y"], feeds)


def test_a_process_is_used_again_and_ends_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "IDLE", 0.2)
    used = []
    for _ in range(2):
        with OnnxRuntime() as runtime:
            runtime.open_model(model(tmp_path), {})
            used.append(runtime._process)
    assert used[0] is used[1]
    deadline = time.monotonic() + 20
    while used[0]._process.returncode is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert used[0]._process.returncode is not None


def test_the_child_imports_nothing_else_of_the_package() -> None:
    show = "print([name for name in sys.modules if name.startswith('pycaffe_fire') and"
    show += " hasattr(sys.modules[name], '__file__')])"
    code = isolation._code().replace("\nmain()", f"\n{show}")
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "['pycaffe_fire.convert.runtime_child']"


SCRIPT = """
import os, signal, sys
from pycaffe_fire.convert.isolation import Isolated
with Isolated("onnxruntime") as runtime:
    child = runtime._process._process.pid
    if sys.argv[1] == "stopped":
        os.kill(child, signal.SIGSTOP)
    print(child, flush=True)
    try:
        runtime.run(["y"], {}) if sys.argv[1] == "stopped" else signal.pause()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        raise
"""


@posix
@pytest.mark.parametrize(("state", "sent"), [("stopped", "SIGINT"), ("waiting", "SIGKILL")])
def test_the_child_ends_with_its_parent(state: str, sent: str) -> None:
    """On Ctrl-C, also while the library computes; and when the parent is killed."""
    parent = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, state], cwd=ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    time.sleep(0.3)
    parent.send_signal(getattr(signal, sent))
    said, _ = parent.communicate(timeout=30)
    assert ("interrupted" in said) == (sent == "SIGINT")
    deadline = time.monotonic() + 30
    while _lives(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _lives(child)


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_library_that_is_missing_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConvertError, match="this needs cv2: pip install opencv"):
        Isolated("OpenCV")

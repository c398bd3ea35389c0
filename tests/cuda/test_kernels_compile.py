"""All kernels compile for real devices, with the options that CuPy adds to ours."""

from __future__ import annotations

import re

import pytest

from pycaffe_fire.backend.cuda.launch import (
    KERNELS,
    KINDS,
    OPTIONS,
    files,
    kernel_names,
    reading_source,
    source_of,
)
from tests.cuda.nvrtc import CompileError, Compiler, find

ARCHITECTURES = (75, 80, 90, 100)
SUMS = ("channel_dots", "channel_moments", "channel_sums", "normalize_sums")
CUPY_OPTIONS = ("-ftz=true", "--device-as-default-execution-space")


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    path = find()
    if path is None:
        pytest.skip("the wheel nvidia-cuda-nvrtc is not installed")
    return Compiler(path)


def everything(kind: str) -> str:
    """One source, because starting the compiler takes most of its time."""
    names = [path.name for path in sorted(KERNELS.glob("*.cuh"))] + [f"{f}.cu" for f in files()]
    first = ["common.cuh", "real.cuh", "sums.cuh"]
    names = first + [name for name in names if name not in first]
    parts = [f'#line 1 "{name}"\n{(KERNELS / name).read_text()}\n' for name in names]
    return f"#define REAL {kind}\n" + "".join(parts)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "float32"])
def test_compiles_for_16_bits(compiler: Compiler, kind: str) -> None:
    code = compiler.compile(everything(kind), ARCHITECTURES[0], (*OPTIONS, *CUPY_OPTIONS))
    assert code.startswith(b"\x7fELF")
    assert [name for name in kernel_names() if name.encode() not in code] == []


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_registers_are_few_and_none_is_spilled(compiler: Compiler, architecture: int) -> None:
    """With 32 registers a thread, a multiprocessor is filled; 64 still leave half of it. Those that
    sum over channels serve two orders in one kernel, where they are not made for one shape."""
    found = compiler.resources(everything("float32"), architecture, (*OPTIONS, *CUPY_OPTIONS))
    assert set(found) == set(kernel_names())
    assert {name: spilled for name, (_, spilled) in found.items() if spilled} == {}
    most = {name: 96 if name in SUMS else 64 for name in found}
    assert {name: used for name, (used, _) in found.items() if used > most[name]} == {}


# Kernels that do little besides moving memory, by what they must do 16 bytes at a time.
READS = (
    "add_widened", "bias_relu", "channel_dots", "channel_moments", "channel_sums", "cut_parts",
    "dropout", "join_parts", "lrn", "lrn_backward", "lrn_ratio", "narrow", "normalize",
    "normalize_backward", "normalize_sums", "prelu",
    "prelu_backward", "relu", "relu_backward", "scale_shift", "weighted_spread", "weighted_sum",
    "widen", "sgd", "nesterov", "adam", "adamw", "rmsprop", "adagrad", "adadelta",
)  # fmt: skip
ONLY_READ = {"channel_dots", "channel_moments", "normalize_sums"}


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_memory_is_moved_16_bytes_at_a_time(compiler: Compiler, kind: str) -> None:
    ptx = compiler.ptx(everything(kind), 80, (*OPTIONS, *CUPY_OPTIONS))
    bodies = {part.partition("(")[0]: part for part in ptx.split(".entry ")[1:]}
    wide = r"\.global(?:\.nc)?\.v4\.[fbu]32"
    assert [name for name in READS if not re.search("ld" + wide, bodies[name])] == []
    writing = [name for name in READS if name not in ONLY_READ]
    assert [name for name in writing if not re.search("st" + wide, bodies[name])] == []


@pytest.mark.parametrize(
    ("file", "kernel", "pointer"),
    [
        ("update", b"adamw", "const double* at_rate"),
        ("dropout", b"dropout", "const unsigned long long* at_step"),
    ],
)
def test_variants_that_read_their_numbers_compile(
    compiler: Compiler, file: str, kernel: bytes, pointer: str
) -> None:
    source = reading_source(file, "float16")
    assert pointer in source
    assert kernel in compiler.compile(source, 80, (*OPTIONS, *CUPY_OPTIONS))


def test_a_wrong_kernel_is_found_out(compiler: Compiler) -> None:
    broken = source_of("relu").replace("rectified(value", "rectified(z")
    with pytest.raises(CompileError, match='"z" is undefined'):
        compiler.compile(broken, 80, OPTIONS)

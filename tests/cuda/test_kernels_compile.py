"""All kernels compile for real devices, with the options that CuPy adds to ours."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

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
    first = ["common.cuh", "real.cuh"]
    names = first + [name for name in names if name not in first]
    parts = [f'#line 1 "{name}"\n{(KERNELS / name).read_text()}\n' for name in names]
    return f"#define REAL {kind}\n" + "".join(parts)


@pytest.mark.parametrize("kind", KINDS)
def test_compiles_for_every_generation(compiler: Compiler, kind: str) -> None:
    known = compiler.architectures()
    wanted = sorted({min(known), *(a for a in ARCHITECTURES if a in known)})
    wanted = wanted if kind == "float32" else wanted[:1]  # the same instructions in all of them
    with ThreadPoolExecutor(2) as pool:
        options = (*OPTIONS, *CUPY_OPTIONS)
        codes = list(pool.map(lambda a: compiler.compile(everything(kind), a, options), wanted))
    for code in codes:
        assert code.startswith(b"\x7fELF")
        assert [name for name in kernel_names() if name.encode() not in code] == []


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_registers_are_few_and_none_is_spilled(compiler: Compiler, architecture: int) -> None:
    """With 32 registers a thread, a multiprocessor is filled; 64 still leave half of it."""
    found = compiler.resources(everything("float32"), architecture, (*OPTIONS, *CUPY_OPTIONS))
    assert set(found) == set(kernel_names())
    assert {name: spilled for name, (_, spilled) in found.items() if spilled} == {}
    assert {name: used for name, (used, _) in found.items() if used > 64} == {}


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
    broken = source_of("relu").replace("rectified(x[i]", "rectified(z[i]")
    with pytest.raises(CompileError, match='"z" is undefined'):
        compiler.compile(broken, 80, OPTIONS)

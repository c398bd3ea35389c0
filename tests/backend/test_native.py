"""The native kernels: their build, loader, checks and task launcher, and those of flat buffers."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend import cpu
from pycaffe_fire.backend.cpu import library, update
from pycaffe_fire.backend.cpu.library import FloatArrays, Floats, Int32s, Ints, Kernel, Library
from pycaffe_fire.backend.cpu.native import build
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.backend.openmp import LIBGOMP
from pycaffe_fire.backend.plans import Segment
from pycaffe_fire.errors import BackendError
from tests.solver.rule_cases import CASES, rule_of

ROOT = Path(__file__).parents[2]
HELPERS = Path(__file__).with_name("helpers.c")

needs_library = pytest.mark.skipif(
    not library.available(), reason="the CPU kernels are not compiled"
)


def has_compiler() -> bool:
    try:
        return bool(build.compiler())
    except build.NoCompiler:
        return False


needs_compiler = pytest.mark.skipif(not has_compiler(), reason="there is no C compiler")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


def python(code: str, *, fails: bool = False, **variables: str) -> str:
    """Run code in a process of its own; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120,
        cwd=ROOT, env={**os.environ, **variables},
    )  # fmt: skip
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr if fails else done.stdout


# The launcher and the header -------------------------------------------------------------------


class Visits(Kernel):
    name = "visits"
    runs: Int32s
    places: Ints
    begun: Ints
    count: int
    order: int

    def check(self) -> None:
        self.need(runs=self.count, places=self.count, begun=1)


class Nested(Kernel):
    name = "nested"
    runs: Int32s
    count: int

    def check(self) -> None:
        self.need(runs=self.count**2)


class Copies(Kernel):
    name = "copies"
    source: Floats
    target: Floats
    first: int
    count: int

    def check(self) -> None:
        end = self.first + self.count
        self.need(source=end, target=end)


class Lanes(Kernel):
    name = "lanes"
    x: Floats
    y: Floats
    kept: Floats
    high: Floats
    low: Floats
    half: Floats
    ints: Floats
    sums: Floats

    def check(self) -> None:
        self.need(x=48, y=48, kept=48, high=48, low=48, half=48, ints=48, sums=3)


class Allocations(Kernel):
    name = "allocations"
    misaligned: Ints

    def check(self) -> None:
        self.need(misaligned=1)


class Tables(Kernel):
    name = "tables"
    arrays: FloatArrays
    totals: Floats
    bias: Floats | None
    rows: int
    count: int

    def check(self) -> None:
        self.need(arrays=self.count, totals=self.rows, bias=1)


FORWARD, BACKWARD, IN_TURNS = 0, 1, 2


@pytest.fixture(scope="session")
def helpers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of libraries with the kernels of helpers.c."""
    if not has_compiler():
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("native")
    sources = [build.SOURCES / name for name in ("tasks.c", "isa.c")]
    assert build.build(folder, sources=[*sources, HELPERS]) == ""
    return folder


@pytest.fixture
def trial(helpers: Path, native_isa: str, monkeypatch: pytest.MonkeyPatch) -> Library:
    """The kernels of helpers.c for every instruction set."""
    return use(helpers, native_isa, monkeypatch)


@pytest.fixture(params=["team", "pool"])
def threads_of(
    request: pytest.FixtureRequest, helpers: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The kernels of helpers.c on libgomp's team, and on the pool that serves elsewhere."""
    if request.param == "team" and not shared_team():
        pytest.skip("there is no libgomp")
    if request.param == "pool":
        monkeypatch.setattr(library, "LIBGOMP", "no such library")
    use(helpers, library.supported()[-1], monkeypatch)
    return str(request.param)


def shared_team() -> bool:
    try:
        return bool(ctypes.CDLL(LIBGOMP))
    except OSError:
        return False


def use(folder: Path, isa: str, monkeypatch: pytest.MonkeyPatch) -> Library:
    # A library that is loaded already would be the same one, with its pool and its settings.
    source = folder / build.this_machine().library(isa)
    copy = Path(shutil.copy(source, folder / f"{os.urandom(4).hex()}{source.suffix}"))
    found = Library(copy, isa)
    monkeypatch.setattr(library, "_in_use", [found])
    return found


def visits(threads: int, count: int, order: int) -> Visits:
    return Visits(
        threads=threads, runs=np.zeros(count, np.int32), places=np.zeros(count, np.int64),
        begun=np.zeros(1, np.int64), count=count, order=order,
    )  # fmt: skip


@pytest.mark.parametrize("order", (FORWARD, BACKWARD, IN_TURNS))
def test_every_task_runs_once(threads_of: str, order: int) -> None:
    for threads in (1, 2, 3, 8, 5):
        for count in (0, 1, 2, 7, 100, 1001):
            kernel = visits(threads, count, order)
            for times in range(1, 6):
                kernel.run()
                assert (kernel.runs == times).all(), (threads, count)


@pytest.mark.parametrize("order", (FORWARD, BACKWARD))
def test_the_order_of_tasks(threads_of: str, order: int) -> None:
    """Each thread has neighbouring tasks; alone, it runs them in order or backwards."""
    kernel = visits(1, 50, order)
    kernel.run()
    wanted = np.arange(50)
    assert (kernel.places == (wanted if order == FORWARD else wanted[::-1])).all()
    kernel = visits(4, 100, order)
    kernel.run()
    steps = np.diff(kernel.places.reshape(4, 25))
    assert (steps > 0).all() if order == FORWARD else (steps < 0).all()


def test_threads_that_sleep_are_woken(threads_of: str) -> None:
    kernel = visits(3, 100, FORWARD)
    for times in range(1, 6):
        kernel.run()
        assert (kernel.runs == times).all()
        time.sleep(0.02)  # longer than waiting threads spin


def test_tasks_in_turns_begin_in_order(threads_of: str) -> None:
    kernel = visits(1, 50, IN_TURNS)
    kernel.run()
    assert (kernel.places == np.arange(50)).all()


def test_python_threads_launch_tasks_at_the_same_time(threads_of: str) -> None:
    kernels = [visits(1 + i % 4, 500, i % 3) for i in range(6)]

    def run(kernel: Visits) -> None:
        for _ in range(300):
            kernel.run()

    callers = [threading.Thread(target=run, args=[kernel]) for kernel in kernels]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
        assert not caller.is_alive()
    for kernel in kernels:
        assert (kernel.runs == 300).all()


def test_tasks_may_launch_tasks(threads_of: str) -> None:
    kernel = Nested(threads=3, runs=np.zeros(400, np.int32), count=20)
    kernel.run()
    assert (kernel.runs == 1).all()


@needs_fork
@needs_library
def test_kernels_run_after_a_fork() -> None:
    """On the team and on the pool, whose threads a forked process does not have."""
    code = """
    import os
    import numpy as np
    from pycaffe_fire.backend.cpu import library
    from pycaffe_fire.backend.cpu.update import add_into
    library.LIBGOMP = {name!r}
    total = np.zeros(200_000, np.float32)
    part = np.ones_like(total)
    add_into(total, part, 3)
    for _ in range(2):  # the child's child, too
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            os._exit(os.waitstatus_to_exitcode(status))
        for _ in range(3):
            add_into(total, part, 3)
    assert (total == 7).all()
    """
    for name in (LIBGOMP, "no such library"):
        python(code.format(name=name))


def test_streamed_copies(trial: Library) -> None:
    source = np.random.default_rng(0).random(4096, np.float32)
    for first in range(0, 20):
        for count in (0, 1, 5, 15, 16, 17, 300, 1000 + first):
            target = np.zeros_like(source)
            Copies(threads=1, source=source, target=target, first=first, count=count).run()
            wanted = np.zeros_like(source)
            wanted[first : first + count] = source[first : first + count]
            np.testing.assert_array_equal(target, wanted)


def test_vectors_of_every_width(trial: Library) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, 48)).astype(np.float32)
    x[[1, 17, 33]], y[[2, 18, 34]] = np.nan, np.nan
    memory = np.zeros(5 * 48 + 16, np.float32)
    aligned = memory[-memory.ctypes.data // 4 % 16 :]  # as streams need it
    kept, high, low, half, ints = aligned[: 5 * 48].reshape(5, 48)
    sums = np.zeros(3, np.float32)
    Lanes(
        threads=1, x=x, y=y, kept=kept, high=high, low=low, half=half, ints=ints, sums=sums
    ).run()  # fmt: skip
    vector = {variant.isa: variant.vector for variant in build.this_machine().variants}[trial.isa]
    for k, width in enumerate((4, min(vector, 8), vector)):
        here = slice(16 * k, 16 * k + width)
        np.testing.assert_array_equal(kept[here], np.where(x > y, x, y)[here])
        np.testing.assert_array_equal(high[here], np.where(y > x, y, x)[here])
        np.testing.assert_array_equal(low[here], np.where(y < x, y, x)[here])
        np.testing.assert_array_equal(half[here], x[here] / 2)
        bits = [each.view(np.int32)[here] for each in (x, y, ints)]
        np.testing.assert_array_equal(bits[2], np.maximum(bits[0], bits[1]))
        np.testing.assert_allclose(sums[k], x[here].sum(), rtol=1e-5)


def test_allocations_begin_at_cache_lines(trial: Library) -> None:
    kernel = Allocations(threads=1, misaligned=np.zeros(1, np.int64))
    kernel.run()
    assert kernel.misaligned[0] == 0


# Structs and their checks ----------------------------------------------------------------------


def test_tables_and_missing_arrays(trial: Library) -> None:
    arrays = [np.full(n, n, np.float32) for n in (5, 6)]
    kernel = Tables(threads=1, arrays=arrays, totals=np.zeros(2, np.float32), rows=2, count=5)
    kernel.run()
    assert kernel.totals.tolist() == [25, 30]
    kernel.bias = np.ones(1, np.float32)
    kernel.run()
    assert kernel.totals.tolist() == [26, 31]
    kernel.bias = None
    kernel.run()
    assert kernel.totals.tolist() == [25, 30]
    kernel.count = 6
    with pytest.raises(BackendError, match="arrays has 5 elements, the kernel needs 6"):
        kernel.run()


@needs_library
def test_wrong_arraysare_refused() -> None:
    total, part = np.zeros((2, 8), np.float32)
    kernel = update.AddInto(threads=1, total=total, part=part, count=8)
    kernel.run()
    with pytest.raises(BackendError, match="add_into: total must be .* float32, got .* float64"):
        kernel.total = total.astype(np.float64)
    with pytest.raises(BackendError, match="part .* got one of float32 that is not C-contiguous"):
        kernel.part = np.zeros(16, np.float32)[::2]
    kernel.run()  # as before
    kernel.part = part[:7]
    with pytest.raises(BackendError, match="add_into: part has 7 elements, the kernel needs 8"):
        kernel.run()
    kernel.part, kernel.threads = part, 0
    with pytest.raises(BackendError, match="add_into: needs at least 1 thread, got 0"):
        kernel.run()
    with pytest.raises(BackendError, match="add_into: field part is not set"):
        update.AddInto(threads=1, total=total, count=8).run()
    with pytest.raises(BackendError, match="kernel add_into has no field sum"):
        update.AddInto(threads=1, sum=total)


@needs_library
def test_a_struct_of_another_size_is_refused() -> None:
    class Short(Kernel):
        name = "add_into"
        total: Floats
        part: Floats

    class Missing(Kernel):
        name = "subtract_from"

    with pytest.raises(BackendError, match="struct add_into has 32 bytes, but .* have 24"):
        Short()
    with pytest.raises(BackendError, match="has no kernel subtract_from"):
        Missing()


def kernel_classes() -> dict[str, type[Kernel]]:
    """All kernels of the package by their names in C."""
    modules = set()
    for path in sorted((ROOT / "pycaffe_fire").rglob("*.py")):
        if re.search(r"^from .*\bimport\b.*Kernel\b|^    \w*Kernel,$", path.read_text(), re.M):
            modules.add(".".join(path.relative_to(ROOT).with_suffix("").parts))
    for module in modules:
        importlib.import_module(module)

    def below(kind: type[Kernel]) -> Iterator[type[Kernel]]:
        for each in kind.__subclasses__():
            yield each
            yield from below(each)

    found = [kind for kind in below(Kernel) if kind.__module__ in modules]
    return {kind.name: kind for kind in found if hasattr(kind, "name")}


def c_structs() -> dict[str, list[tuple[str, str]]]:
    """The fields (name, type) of every struct in the C sources; structs inside are spread out."""
    structs: dict[str, list[tuple[str, str]]] = {}
    for path in [*sorted(build.SOURCES.glob("*.h")), *sorted(build.SOURCES.glob("*.c"))]:
        text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", path.read_text(), flags=re.DOTALL)
        for name, body in re.findall(r"struct (\w+) \{([^{}]*)\};", text):
            fields: list[tuple[str, str]] = []
            for line in filter(None, map(str.strip, body.split(";"))):
                inside = re.fullmatch(r"struct (\w+) \w+", line)
                if inside:
                    fields += structs[inside[1]]
                    continue
                kind = line.replace("const ", "").split()[0]
                for declared in re.sub(r"^(const )?\w+", "", line).split(","):
                    pointer = "*" * declared.count("*")
                    fields.append((re.findall(r"\w+", declared)[-1], kind + pointer))
            structs[name] = fields
    return structs


C_TYPES = {
    np.float32: "float", np.float64: "double", np.uint8: "uint8_t", np.int32: "int32_t",
    np.uint32: "uint32_t", np.int64: "int64_t",
}  # fmt: skip


def c_type(field: Any) -> str:
    if isinstance(field, library._TableField):
        return C_TYPES[field.dtype.type] + "**"
    if isinstance(field, library._ArrayField):
        return C_TYPES[field.dtype.type] + "*"
    return {ctypes.c_int64: "int64_t", ctypes.c_float: "float"}[field.ctype]


def test_python_has_the_kernels_of_c() -> None:
    texts = [path.read_text() for path in build.SOURCES.glob("*.c")]
    exported = {name for text in texts for name in re.findall(r"^KERNEL\((\w+)\)", text, re.M)}
    assert exported == set(kernel_classes())


@pytest.mark.parametrize("name", sorted(kernel_classes()))
def test_fields_are_those_of_the_struct(name: str) -> None:
    kind = kernel_classes()[name]
    assert [(field, c_type(getattr(kind, field))) for field in kind.fields] == c_structs()[name]


# Instruction sets ------------------------------------------------------------------------------

SHOW = "from pycaffe_fire.backend.cpu import library; print(library.load().isa)"


@needs_library
def test_a_variable_picks_the_instruction_set() -> None:
    for isa in library.supported():
        assert python(SHOW, FIRE_CPU_ISA=isa).strip() == isa


@needs_library
@pytest.mark.parametrize("isa", ["sse9", "", "AVX2", "vsx"])
def test_an_unknown_instruction_set_is_refused(isa: str) -> None:
    message = python(SHOW, fails=True, FIRE_CPU_ISA=isa).splitlines()[-1]
    executed = ", ".join(library.supported())
    assert message.endswith(
        f'BackendError: FIRE_CPU_ISA: this processor does not execute "{isa}"; it executes '
        f"{executed}"
    )


@needs_library
def test_only_what_the_processor_executes_is_loaded() -> None:
    assert set(library.supported()) <= {v.isa for v in build.this_machine().variants}
    flags = Path("/proc/cpuinfo").read_text() if sys.platform == "linux" else ""
    for isa, flag in (("avx2", " avx2 "), ("avx512", " avx512vl ")):
        if flag not in flags:
            assert not flags or isa not in library.supported()
    with pytest.raises(BackendError, match='instruction set: this processor does not execute "x"'):
        library.load("x")


# The build -------------------------------------------------------------------------------------


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A copy of the build with the smallest sources."""
    folder = tmp_path / "native"
    folder.mkdir()
    for name in ("build.py", "fire.h", "isa.c", "tasks.c"):
        shutil.copy(build.SOURCES / name, folder)
    spec = importlib.util.spec_from_file_location("copied_build", folder / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def unloaded(sources: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The loader as in a new process, with the copied sources."""
    caches = [
        getattr(library, name)
        for name in ("available", "supported", "_default", "_open", "_target", "_check_build")
    ]
    for cached in caches:
        cached.cache_clear()
    monkeypatch.setattr(library, "build", sources)
    monkeypatch.setattr(library, "_in_use", [])
    monkeypatch.delenv(library.FOLDER_VARIABLE, raising=False)
    yield sources
    for cached in caches:
        cached.cache_clear()


def state(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("objects/*.o")}


@needs_compiler
def test_only_what_has_changed_is_compiled(sources: ModuleType) -> None:
    folder = sources.SOURCES
    assert not sources.is_current()
    assert sources.update() == ""
    assert sources.is_current() and sources.update() is None
    libraries = {path.name for path in folder.glob("libfire_*")}
    target = sources.this_machine()
    assert libraries == {target.library(variant.isa) for variant in target.variants}
    before = state(folder)
    (folder / "isa.c").write_text((folder / "isa.c").read_text() + "\nint more;\n")
    assert not sources.is_current()
    assert sources.update() == ""
    after = state(folder)
    assert {n: t for n, t in after.items() if n.startswith("tasks")} == {
        n: t for n, t in before.items() if n.startswith("tasks")
    }
    assert len(after) == len(before) and set(after) != set(before)
    assert {path.name for path in folder.glob("libfire_*")} == libraries


@needs_compiler
def test_a_source_that_does_not_compile(unloaded: ModuleType) -> None:
    folder = unloaded.SOURCES
    unloaded.update()
    (folder / "more.c").write_text('#include "fire.h"\nint wrong(void) { return vector; }\n')
    with pytest.raises(unloaded.BuildError, match=r"more\.c:2"):
        unloaded.update()
    with pytest.raises(BackendError, match=r"the CPU kernels do not compile:\n(.|\n)*more\.c:2"):
        library.available()
    assert not list(folder.glob("[0-9]*")) and not unloaded.is_current()
    (folder / "more.c").unlink()
    assert unloaded.is_current()  # the libraries of before


@needs_compiler
def test_the_loader_compiles_what_has_changed(unloaded: ModuleType) -> None:
    assert library.available()
    path = library.load().path
    assert path.parent == unloaded.SOURCES
    before = path.stat().st_ino
    (unloaded.SOURCES / "isa.c").write_text((unloaded.SOURCES / "isa.c").read_text() + "\n")
    library._check_build.cache_clear()
    library._check_build()
    assert path.stat().st_ino != before  # never written in place: processes may have it loaded


@needs_compiler
def test_one_process_at_a_time_compiles(sources: ModuleType) -> None:
    command = [sys.executable, str(sources.SOURCES / "build.py")]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    printed = [run.communicate(timeout=120)[0].split()[0] for run in runs]
    assert sorted(printed) == ["compiled", "nothing", "nothing"]


def test_without_a_compiler_numpy_serves(
    unloaded: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CC", "/no/such/compiler")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert not library.available() and not library.available()
    (record,) = caplog.records
    assert "Running on the slower NumPy ops" in record.getMessage()
    assert "/no/such/compiler" in record.getMessage()
    with pytest.raises(BackendError, match="the CPU kernels are not compiled"):
        library.load()


def test_an_installed_package_has_no_sources(
    unloaded: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    for path in unloaded.SOURCES.glob("*.[ch]"):
        path.unlink()
    assert not library.available()
    assert "no C compiler when the package was installed" in caplog.text


@needs_compiler
def test_an_installed_package_uses_its_libraries(unloaded: ModuleType) -> None:
    unloaded.update()
    for path in unloaded.SOURCES.glob("*.[ch]"):
        path.unlink()
    assert library.available()


def test_sources_that_cannot_be_compiled_in_place(
    unloaded: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert not library.available()
    assert f"{unloaded.SOURCES} is not writable" in caplog.text


def test_a_machine_that_has_no_kernels(
    unloaded: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert not library.available()
    assert "there are none for riscv64" in caplog.text


def test_sources_and_flags_assume_nothing_of_nan() -> None:
    assert not {"-ffast-math", "-Ofast", "-ffinite-math-only"} & set(build.FLAGS)


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="ziglang is missing")
@pytest.mark.parametrize(
    "target",
    [
        build.Target("aarch64", "linux", ("-target", "aarch64-linux-gnu.2.17")),
        build.Target("x86_64", "win32", ("-target", "x86_64-windows-gnu")),
    ],
    ids=lambda target: f"{target.system}-{target.machine}",
)
def test_ziglang_compiles_for_other_machines(target: build.Target, tmp_path: Path) -> None:
    assert build.build(tmp_path, target, build.ZIG) == ""
    for variant in target.variants:
        assert (tmp_path / target.library(variant.isa)).stat().st_size > 1000


EXAMPLE = re.compile(r"```(c|python)\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="session")
def documented(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of libraries with the kernel that docs/cpu.md shows, and its Python text."""
    if not has_compiler():
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("documented")
    blocks = EXAMPLE.findall((ROOT / "docs" / "cpu.md").read_text())
    (c,) = (text for kind, text in blocks if kind == "c")
    (folder / "relu.c").write_text(c)
    sources = [build.SOURCES / "tasks.c", build.SOURCES / "isa.c", folder / "relu.c"]
    assert build.build(folder, sources=sources) == ""
    return folder, next(text for kind, text in blocks if kind == "python")


def test_the_example_of_the_documentation(
    documented: tuple[Path, str], native_isa: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, text = documented
    use(folder, native_isa, monkeypatch)
    module = ModuleType("pycaffe_fire.backend.cpu.relu")
    module.__package__ = cpu.__name__
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(text, vars(module))
    x = np.random.default_rng(2).standard_normal(40_001).astype(np.float32)
    y = np.zeros_like(x)
    module.Relu(threads=2, x=x, y=y, count=x.size, slope=0.1).run()
    np.testing.assert_allclose(y, np.where(x > 0, x, np.float32(0.1) * x), rtol=1e-6)


# Kernels of flat buffers -----------------------------------------------------------------------

SEGMENTS = [
    Segment(0, 2 * 16384 + 5, 1.0, 1.0),
    Segment(32784, 32784, 1.0, 1.0),
    Segment(32784, 32787, 2.0, 0.5),
    Segment(32800, 69_999, 0.5, 0.0),
]
BUFFER = 70_000


def random_floats(*shape: int) -> Any:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("l1", [False, True], ids=["L2", "L1"])
@pytest.mark.parametrize("case", CASES)
def test_update_rules(isa: str, case: str, l1: bool) -> None:
    rule = rule_of(case)
    assert rule.formula.kernel is not None

    def run(step: Any) -> Any:
        w, g, *history = np.abs(random_floats(2 + rule.slots, BUFFER))
        for i, rates in enumerate((None, np.array([0.1, 0.2, 0.3, 0.4]))):
            step(w, g, history, 0.05, 0.01, l1, 0.5, rule.numbers(i), rates)
        return np.stack([w, *history])

    want = run(NumPyBackend().update(rule.formula, SEGMENTS))
    got = [run(update.Update(n, rule.formula.kernel, SEGMENTS)) for n in (1, 2, 5)]
    np.testing.assert_allclose(got[0], want, rtol=2e-5, atol=1e-6)
    for other in got[1:]:
        np.testing.assert_array_equal(other, got[0])


@needs_library
def test_an_update_needs_whole_buffers() -> None:
    step = update.Update(1, "sgd", SEGMENTS)
    w, g, h = random_floats(3, BUFFER)
    with pytest.raises(BackendError, match="kernel sgd: h has 69998 elements, .* needs 69999"):
        step(w, g, [h[:69_998]], 0.1, 0.0, False, 1.0, (0.9,))


def test_inner_products_of_segments(isa: str) -> None:
    a, b = random_floats(2, BUFFER)
    want = [(a[s.start : s.stop].astype(float) * b[s.start : s.stop]).sum() for s in SEGMENTS]
    got = [update.Dots(n, SEGMENTS)(a, b) for n in (1, 2, 5)]
    np.testing.assert_allclose(got[0], want, rtol=1e-12)
    for other in got[1:]:
        np.testing.assert_array_equal(other, got[0])


@needs_library
def test_sums_have_the_same_bits_on_every_instruction_set() -> None:
    values = random_floats(100_001)
    sums = set()
    for isa in library.supported():
        with library.using(isa):
            sums |= {update.sum_of_squares(values, threads) for threads in (1, 2, 5)}
    (total,) = sums
    assert total == pytest.approx((values.astype(float) ** 2).sum(), rel=1e-12)


@pytest.mark.parametrize("size", [0, 1, 5, 16, 17, 16384, 16385, 50_000])
def test_sums_and_additions_of_any_size(isa: str, size: int) -> None:
    total, part = random_floats(2, size)
    want = total + part
    squares = (total.astype(float) ** 2).sum()
    assert update.sum_of_squares(total, 2) == pytest.approx(squares, rel=1e-12)
    update.add_into(total, part, 2)
    np.testing.assert_array_equal(total, want)


@pytest.mark.parametrize("odd", [np.nan, -np.nan, np.inf, -np.inf])
def test_no_odd_number_is_missed(isa: str, odd: float) -> None:
    """Also among the few that fill no vector."""
    for size in (1, 5, 8, 31, 64, 131):
        values = np.full(size, np.finfo(np.float32).min)
        for threads in (1, 2):
            assert update.all_finite(values, threads)
            for i in range(size):
                values[i], usual = odd, values[i]
                assert not update.all_finite(values, threads), (size, threads, i)
                values[i] = usual

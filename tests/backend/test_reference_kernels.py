"""No op runs on the library's reference kernels, which loop over single elements: the library is
asked for the names of the implementations that plans chose."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire import schema
from pycaffe_fire.backend.base import Backend
from pycaffe_fire.backend.blob import Blob
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.backend.onednn import OneDNNBackend, library
from pycaffe_fire.backend.onednn.library import consists_of
from pycaffe_fire.backend.plans import Window
from pycaffe_fire.errors import BackendError
from pycaffe_fire.layers import Context
from pycaffe_fire.net import Net
from pycaffe_fire.net.graph import filter_net
from pycaffe_fire.net.synthetic import with_synthetic_data

ROOT = Path(__file__).parents[2]
NETS = sorted(  # made-up data has no boxes
    p
    for p in ROOT.glob("models/*/*.prototxt")
    if "solver" not in p.name and "AnnotatedData" not in p.read_text()
)
IMAGES = {"lenet": (1, 28, 28), "cifar10_quick": (3, 32, 32), "cifar10_full": (3, 32, 32)}
GOLDEN = sorted((ROOT / "tests" / "golden" / "layers").glob("*.npz"))

try:
    library()
except BackendError:
    pytest.skip("no oneDNN library loads", allow_module_level=True)


@pytest.fixture
def references() -> Iterator[list[str]]:
    """The ops that a test has made run on reference kernels."""
    found = library().references
    before = found[:]
    found.clear()
    yield found
    found[:] = before


def test_the_guard_finds_reference_kernels_in_any_part_of_a_name() -> None:
    assert consists_of("conv:any+ref:any", ("ref",)) and consists_of("ref:any", ("ref",))
    assert not consists_of("jit:avx2", ("ref",)) and not consists_of("x64:gemm:jit", ("ref",))


def test_a_reference_kernel_is_reported_once(
    references: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    backend = OneDNNBackend(1)
    x, w, y = blobs(backend, (1, 4, 6), (4, 4, 16), (1, 4, 56))
    # The plan as it was before there was a guard: the layout of a blocked source is kept.
    plan = backend.convolution(x, w, None, y, Window((16,), (8,), (0,), (1,)), 1, None, True)
    made = plan._create(  # type: ignore[attr-defined]
        "forward", 64, 10, blocked(backend, x), plan._any((4, 4, 16)), None, plan._any(y.shape),  # type: ignore[attr-defined]
        *plan._geometry(), None,  # type: ignore[attr-defined]
    )  # fmt: skip
    if not library().is_reference(made):
        pytest.skip("this library has a kernel for it")
    for _ in range(2):
        library().report_reference(made, [[1, 4, 6]])
    library().destroy("primitive_desc", made)
    assert len(references) == 1 and caplog.text.count("slow reference kernel") == 1


@pytest.mark.parametrize("path", NETS, ids=[f"{p.parent.name}-{p.stem}" for p in NETS])
def test_models(path: Path, references: list[str]) -> None:
    """A training pass, or a forward pass of a deployed net."""
    param = schema.read_net(path)
    param.state.phase = schema.TEST if "deploy" in path.name else schema.TRAIN
    param = with_synthetic_data(filter_net(param), IMAGES.get(path.parent.name))
    for layer in param.layer:
        shapes = layer.dummy_data_param.shape if layer.type == "DummyData" else ()
        for shape in [*shapes, *layer.input_param.shape]:
            shape.dim[0] = 1
    net = Net(param, OneDNNBackend(1), Context())
    net.run_forward()
    if param.state.phase == schema.TRAIN:
        net.run_backward()
    assert references == []


@pytest.mark.parametrize("path", GOLDEN, ids=[p.stem for p in GOLDEN])
def test_golden_cases(path: Path, references: list[str]) -> None:
    with np.load(path) as archive:
        reference = dict(archive)
    param = schema.parse_text(str(reference["prototxt"]), schema.NetParameter())
    param.state.phase = schema.Phase.Value(str(reference["phase"]))
    net = Net(param, OneDNNBackend(1), Context())
    for name, blob in net.blobs.items():
        stem, number = name.rstrip("0123456789"), name[-1]
        if stem in ("raw", "in") and (stem == "raw" or f"raw{number}" not in net.blobs):
            blob.data[...] = reference[f"bottom{number}"]
    for i, blob in enumerate(net.params.get("layer", [])):
        blob.data[...] = reference[f"param{i}"]
    net.run_forward()
    if "top_diff0" in reference:
        for _ in range(2):  # gradients are written, then added to
            net.run_backward()
    assert references == []


Shape = tuple[int, ...]


def blobs(backend: Backend, *shapes: Shape) -> list[Blob]:
    return [Blob(backend, shape, f"blob{i}") for i, shape in enumerate(shapes)]


def blocked(backend: OneDNNBackend, x: Blob) -> Any:
    """The layout that a convolution gives a blob."""
    axes = len(x.shape) - 2
    one, none = (1,) * axes, (0,) * axes
    before, weights = blobs(backend, x.shape, (x.shape[1], x.shape[1], *one))
    backend.convolution(before, weights, None, x, Window(one, one, none, one), 1)
    return x.value.layout


# axes, kernel, stride, dilation
WINDOWS = [
    (1, 3, 1, 1), (1, 3, 1, 2), (1, 16, 8, 1), (2, 3, 1, 2), (2, 4, 2, 1), (2, 7, 1, 1),
    (2, 16, 8, 1), (2, 63, 32, 1), (3, 3, 1, 1), (3, 3, 2, 1), (3, 3, 1, 2),
    (3, 4, 2, 1),
]  # fmt: skip
CHANNELS = [(1, 21, 21), (1, 64, 8), (21, 21, 21), (4, 20, 20)]


@pytest.mark.parametrize("transposed", [False, True], ids=["conv", "deconv"])
@pytest.mark.parametrize("after", ["input", "convolution"])
@pytest.mark.parametrize("groups, into, out", CHANNELS)
@pytest.mark.parametrize("axes, kernel, stride, dilation", WINDOWS)
def test_convolutions_of_all_kinds(
    axes: int, kernel: int, stride: int, dilation: int, groups: int, into: int, out: int,
    after: str, transposed: bool, references: list[str],
) -> None:  # fmt: skip
    """Equal to the sums of the NumPy backend, with no reference kernel in any direction."""
    small = (2, 3) if axes == 2 else (3,) * axes
    window = Window((kernel,) * axes, (stride,) * axes, (1,) * axes, (dilation,) * axes)
    extent = dilation * (kernel - 1) + 1
    large = tuple(stride * (n - 1) + extent - 2 for n in small)
    x_shape = (2, into, *(small if transposed else large))
    y_shape = (2, out, *(large if transposed else small))
    first, second = (into, out) if transposed else (out, into)
    shapes = (x_shape, (first, second // groups, *window.kernel), (out,), y_shape)
    rng = np.random.default_rng(3)
    values = [rng.normal(size=s).astype(np.float32) for s in (*shapes, y_shape)]

    def results(backend: Backend) -> list[Any]:
        x, w, b, y = blobs(backend, *shapes)
        if after == "convolution" and isinstance(backend, OneDNNBackend):
            blocked(backend, x)
        for blob, value in zip((x, w, b), values, strict=False):
            blob.data[...] = value
        plan = backend.convolution(x, w, b, y, window, groups, 0.0, transposed)
        plan.forward()
        top = np.array(y.data)
        y.diff[...] = values[4]
        for blob in (w, b):
            blob.gradient.clear()
        for _ in range(2):  # gradients are written, then added to
            plan.backward(True, True, True)
        return [top, *(np.array(blob.diff) for blob in (x, w, b))]

    for got, want in zip(results(OneDNNBackend(1)), results(NumPyBackend()), strict=True):
        np.testing.assert_allclose(got, want, 0, 2e-5 * max(1.0, float(np.abs(want).max())))
    assert references == []

"""What every layer promises, checked over all rows of the layer table (see case.py)."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import Net, schema
from pycaffe_fire.backend import cpu_backend
from pycaffe_fire.backend.base import Backend
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.layers import LAYERS, Layer
from pycaffe_fire.pycaffe.draw.boxes import COLOURS
from tests.layers.case import Array, Bad, Case, Trial

HERE = Path(__file__).parent
GOLDEN = sorted((HERE.parent / "golden" / "layers").glob("*.npz"))
MODULES = sorted(path.stem for path in HERE.glob("rows_*.py"))
ROWS: list[Case] = [
    row for name in MODULES for row in importlib.import_module(f"tests.layers.{name}").ROWS
]

# Their tests need files or callers and stand elsewhere.
READERS = {
    "DenseImageData",
    "ImageLabelmapData",
    "ImageSegData",
    "AnnotatedData",
    "Data",
    "HDF5Data",
    "HDF5Output",
    "ImageData",
    "MemoryData",
    "Python",
    "WindowData",
}


def rows(keep: Callable[[Case], Any] = lambda case: True) -> pytest.MarkDecorator:
    """Parametrise a test over the rows that `keep` accepts."""
    return pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in ROWS if keep(c)])


def double() -> Backend:
    return NumPyBackend(dtype=np.float64)


def fast() -> Backend:
    return cpu_backend(1)


def assert_close(got: Sequence[Array], want: Sequence[Array], tolerance: float) -> None:
    """Equal up to `tolerance` times the largest wanted value (at least 1) of each array."""
    assert len(got) == len(want)
    for number, (a, b) in enumerate(zip(got, want, strict=True)):
        scale = max(1.0, float(np.abs(b).max(initial=0)))
        assert a.shape == b.shape, f"result {number}"
        np.testing.assert_allclose(a, b, 0, tolerance * scale, err_msg=f"result {number}")


# The table itself.


def test_row_names_are_unique() -> None:
    names = [case.name for case in ROWS]
    assert sorted(set(names)) == sorted(names)


def test_every_layer_type_has_a_row() -> None:
    assert set(LAYERS) - {case.type for case in ROWS} - READERS == set()


def test_every_reference_case_belongs_to_a_row() -> None:
    patterns = [pattern for case in ROWS for pattern in case.golden]
    assert [p.stem for p in GOLDEN if not any(fnmatch(p.stem, pat) for pat in patterns)] == []
    assert [pat for pat in patterns if not any(fnmatch(p.stem, pat) for p in GOLDEN)] == []


# What a type says about itself (see layers/description.py).


def undescribed(type_name: str) -> list[str]:
    """What a type leaves to a default that is right only by chance."""
    kind, found = LAYERS[type_name], []
    own = [base for base in kind.__mro__ if issubclass(base, Layer) and base is not Layer]
    if not any("storage" in vars(base) for base in own):
        found.append("storage")
    read = {name for base in own for name in re.findall(PARAM_FIELD, inspect.getsource(base))}
    if read - SHARED_FIELDS and kind.field_of(type_name) not in read:
        found.append("param_field")
    if kind.family not in COLOURS:
        found.append("family")
    return found


PARAM_FIELD = r"self\.param\.(\w+_param)"
SHARED_FIELDS = {"transform_param", "loss_param"}


@pytest.mark.parametrize("type_name", list(LAYERS))
def test_every_type_describes_itself(type_name: str) -> None:
    assert undescribed(type_name) == []


def uncounted(layer: Layer) -> bool:
    """Does it have matrices and say nothing of multiplications?"""
    matrices = [blob for blob in layer.blobs if sum(size > 1 for size in blob.shape) > 1]
    return bool(matrices) and type(layer).multiply_adds is Layer.multiply_adds


@rows()
def test_weights_are_described(case: Case) -> None:
    """Matrices are counted in multiply_adds; what forward changes is declared in averages."""
    trial = Trial(case, fast())
    assert not uncounted(trial.layer)
    before = trial.weights
    trial.forward(case.values())
    after = trial.weights
    changed = {i for i, old in enumerate(before) if not np.array_equal(old, after[i])}
    assert changed <= set(trial.layer.averages)


@rows(lambda case: LAYERS[case.type].pixelwise and len(case.shapes[0]) == 4)
def test_pixelwise_layers_keep_the_pixels(case: Case) -> None:
    trial = Trial(case, fast())
    sizes = {shape[2:] for shape in case.shapes}
    assert {trial.net.blobs[name].shape[2:] for name in trial.tops} <= sizes


# Against Caffe itself.


@pytest.mark.parametrize("path", [pytest.param(p, id=p.stem) for p in GOLDEN])
def test_agrees_with_caffe(path: Path) -> None:
    with np.load(path) as archive:
        reference = dict(archive)
    param = schema.parse_text(str(reference["prototxt"]), schema.NetParameter())
    net = Net(param, getattr(caffe, str(reference["phase"])))
    weights = net.params.get("layer", [])
    for i, bottom in enumerate(_series(reference, "bottom")):
        net.blobs[f"raw{i}" if f"raw{i}" in net.blobs else f"in{i}"].data[...] = bottom
    for blob, value in zip(weights, _series(reference, "param"), strict=True):
        blob.data[...] = value
    net.forward()
    for i, top in enumerate(_series(reference, "top")):
        _assert_reference(net.blobs[f"out{i}"].data, top, f"top {i}")
    for i, value in enumerate(_series(reference, "param_after")):
        _assert_reference(weights[i].data, value, f"weights {i} after forward")
    if "top_diff0" not in reference:
        return
    for i, diff in enumerate(_series(reference, "top_diff")):
        net.blobs[f"out{i}"].diff[...] = diff
    for blob in weights:
        blob.diff[...] = 0
    net.backward()
    for i, diff in enumerate(_series(reference, "bottom_diff")):
        if diff.any():
            _assert_reference(net.blobs[f"in{i}"].diff, diff, f"bottom {i} diff")
    for i, diff in enumerate(_series(reference, "param_diff")):
        _assert_reference(weights[i].diff, diff, f"weights {i} diff")


def _series(reference: dict[str, Array], prefix: str) -> list[Array]:
    """prefix0, prefix1, ..."""
    count = sum(key.removeprefix(prefix).isdigit() for key in reference if key.startswith(prefix))
    return [reference[f"{prefix}{i}"] for i in range(count)]


def _assert_reference(got: Array, want: Array, what: str) -> None:
    if got.size == want.size == 1:
        got, want = got.reshape(()), want.reshape(())
    assert got.shape == want.shape, what
    scale = max(1.0, float(np.abs(want).max(initial=0)))
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5 * scale, err_msg=what)


# Shapes and numbers.


@rows(lambda case: case.top_shapes is not None)
def test_shapes_of_tops(case: Case) -> None:
    trial = Trial(case, double())
    assert tuple(trial.net.blobs[name].shape for name in trial.tops) == case.top_shapes


STEP = 1e-5
PROBES = 48  # elements of a blob that are differenced one by one


@rows(lambda case: case.has_backward and case.numeric)
def test_gradients_are_those_of_the_forward_pass(case: Case) -> None:
    trial = Trial(case, double())
    values, weights = case.values(), trial.weights
    diffs = trial.projection(trial.forward(values))
    trial.weights = weights
    trial.net.clear_param_diffs()
    gradients = trial.backward(diffs)
    inputs = [values[i] for i in case.wants_gradient] + [weights[i] for i in case.learns]

    def projected(which: int, value: Array) -> float:
        trial.put(values)
        trial.weights = weights
        trial.learners[which].data[...] = value
        return sum(float((t * d).sum()) for t, d in zip(trial.forward(), diffs, strict=True))

    for which, (value, gradient) in enumerate(zip(inputs, gradients, strict=True)):
        for direction in _directions(value):
            change = projected(which, value + direction) - projected(which, value - direction)
            want, got = change / (2 * STEP), float((gradient * direction).sum()) / STEP
            assert got == pytest.approx(want, rel=1e-6, abs=1e-6), f"input {which}"


def _directions(value: Array) -> list[Array]:
    """Small steps: one along everything at once, then along single elements."""
    rng = np.random.default_rng(5)
    steps = [STEP * rng.normal(size=(value.size,))]
    for place in rng.permutation(value.size)[:PROBES]:
        steps.append(np.zeros(value.size))
        steps[-1][place] = STEP
    return [step.reshape(value.shape) for step in steps]


@rows()
def test_float32_agrees_with_float64(case: Case) -> None:
    values = [np.float32(v) for v in case.values()]
    want = Trial(case, double()).both(values)
    assert_close(Trial(case, fast()).both(values), want, case.tolerance)


@rows(lambda case: any(len(case.shapes[i]) == 4 for i in case.wants_gradient))
def test_blocked_layouts_agree_with_plain_ones(case: Case) -> None:
    values = [np.float32(v) for v in case.values()]
    for in_place in {False, case.in_place}:
        want = Trial(case, double(), in_place, behind=True).both(values)
        got = Trial(case, fast(), in_place, behind=True).both(values)
        assert_close(got, want, case.tolerance)


@rows(lambda case: case.has_backward and case.tops == 1)
def test_a_relu_may_run_in_place_behind_it(case: Case) -> None:
    apart = Trial(case, double(), relu="relu")
    values = [np.float32(v) for v in case.values()]
    want = apart.both(values)
    if want[0].shape:  # not behind a loss
        for backend in (double(), fast()):
            assert_close(Trial(case, backend, relu="out0").both(values), want, case.tolerance)


# Batch sizes.


@rows(lambda case: case.batched and case.shapes)
def test_reshape_to_another_batch_and_back(case: Case) -> None:
    other = case.with_batch(case.shapes[case.batched[0]][0] + 3)
    trial, fresh = Trial(case, fast()), Trial(other, fast())
    weights = trial.weights
    before = trial.both(case.values())
    trial.resize(other)
    trial.weights = weights
    assert_close(trial.both(other.values(1)), fresh.both(other.values(1)), 1e-6)
    trial.resize(case)
    trial.weights = weights
    assert_close(trial.both(case.values()), before, 1e-6)


@rows(lambda case: case.batched and case.shapes)
def test_batch_of_one(case: Case) -> None:
    single, num = case.with_batch(1), case.shapes[case.batched[0]][0]
    whole = [np.float32(v) for v in case.values()]
    values = [v[:1] if i in case.batched else v for i, v in enumerate(whole)]
    alone = Trial(single, fast()).both(values)
    assert_close(alone, Trial(single, double()).both(values), case.tolerance)
    for one, of_many in zip(alone, Trial(case, fast()).forward(whole), strict=False):
        if not case.mixes_samples and of_many.shape[:1] == (num,) and one.shape[:1] == (1,):
            assert_close([one], [of_many[:1]], case.tolerance)


# In place, weights, drawing.


@rows(lambda case: case.in_place)
def test_in_place_equals_out_of_place(case: Case) -> None:
    for backend in (double, fast):
        want = Trial(case, backend()).both(case.values())
        assert_close(Trial(case, backend(), in_place=True).both(case.values()), want, 1e-6)


@rows(lambda case: case.weights)
def test_weight_blobs(case: Case, tmp_path: Path) -> None:
    """As many as said, adding up gradients, and the same output after saving and loading."""
    trial, other = Trial(case, fast()), Trial(case, fast())
    assert len(trial.layer.blobs) == case.weights
    saved = str(tmp_path / "weights.caffemodel")
    trial.net.save(saved)
    tops = trial.forward(case.values())
    if case.has_backward:
        diffs, start = trial.projection(tops), len(case.wants_gradient)
        once = trial.backward(diffs)[start:]
        assert_close(trial.backward(diffs)[start:], [2 * g for g in once], 1e-6)
    for blob in other.layer.blobs:
        blob.data[...] = 1
    other.net.copy_from(saved)
    assert_close(other.forward(case.values()), tops, 1e-7)


@rows(lambda case: case.has_backward)
def test_backward_writes_only_where_asked(case: Case) -> None:
    trial = Trial(case, fast())
    tops = trial.forward(case.values())
    trial.net.propagate_down[trial.index] = [False] * len(case.shapes)
    trial.layer.param_propagate_down = [False] * len(trial.layer.blobs)
    trial.net.clear_param_diffs()
    for name, diff in zip(trial.tops, trial.projection(tops), strict=True):
        trial.net.blobs[name].diff[...] = diff
    shared = {id(trial.net.blobs[name].gradient) for name in trial.tops}
    bottoms = [trial.net.blobs[f"in{i}"] for i in case.wants_gradient]
    alone = [blob for blob in bottoms if id(blob.gradient) not in shared]
    for blob in alone:
        blob.diff[...] = 7
    trial.net.run_backward()
    assert all((blob.diff == 7).all() for blob in alone)
    assert not any(trial.layer.blobs[i].diff.any() for i in case.learns)


@rows(lambda case: case.shapes)
def test_draws_depend_on_the_step_alone(case: Case) -> None:
    trial = Trial(case, fast())
    weights = trial.weights

    def tops_at(step: int) -> list[Array]:
        trial.net.context.step = step
        trial.weights = weights
        return trial.forward(case.values())

    first, second, again = tops_at(0), tops_at(1), tops_at(0)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert case.random != all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


# Odd numbers and wrong ones.


@rows(lambda case: case.shapes and case.finite_at)
def test_extreme_inputs_give_finite_results(case: Case) -> None:
    for factor in case.finite_at:
        values = [factor * v if case.has_free_values(i) else v for i, v in enumerate(case.values())]
        with np.errstate(all="ignore"):
            results = Trial(case, fast()).both(values)
        assert all(np.isfinite(r).all() for r in results), f"inputs times {factor:g}"


@rows(lambda case: case.wants_gradient)
def test_nan_does_not_stop_a_layer(case: Case) -> None:
    values = case.values()
    for i in case.wants_gradient:
        values[i].reshape(-1)[:: max(1, values[i].size // 3)] = np.nan
    with np.errstate(all="ignore"):
        results = Trial(case, fast()).both(values)
    assert [r.shape for r in results] == [r.shape for r in Trial(case, fast()).both(case.values())]


BAD = [pytest.param(case, bad, id=f"{case.name}: {bad.match}") for case in ROWS for bad in case.bad]


@pytest.mark.parametrize(("case", "bad"), BAD)
def test_bad_variants_are_refused(case: Case, bad: Bad) -> None:
    changed = bad.applied(case)
    with pytest.raises(bad.error, match=bad.match) as caught:
        trial = Trial(changed, fast(), in_place=bad.in_place)
        trial.forward(changed.values())
    assert not bad.names_layer or f'layer "layer" ({case.type})' in str(caught.value)

"""Starting from others' weights: several files, what does not fit, what the net lacks."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.errors import WeightsError
from tests.net.net_cases import conv, inputs, ip, make, relu

GOLDEN = Path(__file__).parents[1] / "golden" / "solver" / "sgd_step"


def text(outputs: int = 5, filters: int = 16) -> str:
    return inputs() + conv("c", "data", filters) + relu("r", "c") + ip("ip", "c", outputs)


def saved(folder: Path, name: str, prototxt: str, value: float) -> str:
    """A file of weights that are all the same."""
    net = make(prototxt)
    for blobs in net.params.values():
        for blob in blobs:
            blob.data[...] = value
    net.save(str(folder / name))
    return str(folder / name)


def filled(net: caffe.Net, name: str, value: float) -> bool:
    return all((blob.data == value).all() for blob in net.params[name])


def test_later_files_overwrite_earlier_ones(tmp_path: Path) -> None:
    both = saved(tmp_path, "both.caffemodel", text(), 1)
    head = saved(tmp_path, "head.caffemodel.h5", inputs() + ip("ip", "data", 5), 2)
    net = make(inputs() + conv("c", "data", 16) + ip("ip", "data", 5))
    with pytest.raises(WeightsError, match=r"both.caffemodel: layer \"ip\" blob 0"):
        net.copy_from([both, head])
    net.copy_from([saved(tmp_path, "c.caffemodel", inputs() + conv("c", "data", 16), 3), head])
    assert filled(net, "c", 3) and filled(net, "ip", 2)


def test_misfits_of_all_files_are_listed_at_once(tmp_path: Path) -> None:
    files = [
        saved(tmp_path, "a.caffemodel", text(6), 1),
        saved(tmp_path, "b.caffemodel.h5", text(5, 12), 2),
    ]
    net = make(text())
    before = [blob.data.copy() for blobs in net.params.values() for blob in blobs]
    with pytest.raises(WeightsError) as caught:
        net.copy_from(files)
    said = str(caught.value)
    assert f'{files[0]}: layer "ip" blob 0: [6, 1024] in the file, [5, 1024] in the net' in said
    assert f'{files[0]}: layer "ip" blob 1: [6] in the file, [5] in the net' in said
    assert f'{files[1]}: layer "c" blob 0: [12, 3, 3, 3] in the file, [16, 3, 3, 3] in' in said
    assert f'{files[1]}: layer "ip" blob 0: [5, 768] in the file, [5, 1024] in the net' in said
    assert "rename it in the prototxt" in said and "--ignore-mismatch" in said
    after = [blob.data for blobs in net.params.values() for blob in blobs]
    assert all((a == b).all() for a, b in zip(before, after, strict=True))


def test_what_fits_is_copied_and_the_rest_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = saved(tmp_path, "a.caffemodel", text(6), 7)
    net = make(text())
    before = net.params["ip"][0].data.copy()
    with caplog.at_level(logging.WARNING, "pycaffe_fire"):
        net.copy_from(path, ignore_mismatch=True)
    assert filled(net, "c", 7)
    np.testing.assert_array_equal(net.params["ip"][0].data, before)
    (record,) = caplog.records
    assert f'{path}: layer "ip" blob 0: [6, 1024] in the file, [5, 1024]' in record.getMessage()


def test_layers_that_the_net_lacks_are_named_as_caffe_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = saved(tmp_path, "a.caffemodel", text(), 1)
    net = make(inputs() + conv("c", "data", 16))
    with caplog.at_level(logging.INFO, "pycaffe_fire"):
        net.copy_from(path)
    said = [r.getMessage() for r in caplog.records if "source layer" in r.getMessage()]
    assert said == ["Ignoring source layer r", "Ignoring source layer ip"]


def test_a_file_of_another_net_is_an_error_unless_allowed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = saved(tmp_path, "other.caffemodel", inputs() + ip("fc", "data", 5), 1)
    with caplog.at_level(logging.WARNING, "pycaffe_fire"):
        make(text()).copy_from(saved(tmp_path, "own.caffemodel", text(), 1))
        assert not caplog.records
        with pytest.raises(WeightsError, match=r"other.caffemodel: no layer .*allow-empty-weights"):
            make(text()).copy_from(other)
        make(text()).copy_from(other, allow_empty=True)
    assert (
        "other.caffemodel: no layer with weights has a name of this net's: nothing is copied"
        in caplog.text
    )


def state_and_weights(folder: Path, suffix: str, anonymous: bool) -> tuple[Path, Path]:
    """A state and its weights; under names that do not say which is which, if anonymous."""
    state = schema.SolverStateFile(7, "nets/snap_iter_7.caffemodel", [np.ones(3, np.float32)])
    names = ("one", "two") if anonymous else ("snap.solverstate", "snap.caffemodel")
    paths = folder / f"{names[0]}{suffix}", folder / f"{names[1]}{suffix}"
    schema.write_state(paths[0], state)
    make(text()).save(str(paths[1]))
    if anonymous:
        paths = paths[0].rename(folder / "a"), paths[1].rename(folder / "b")
    return paths


@pytest.mark.parametrize("anonymous", [False, True])
@pytest.mark.parametrize("suffix", ["", ".h5"])
def test_one_given_for_the_other(tmp_path: Path, suffix: str, anonymous: bool) -> None:
    state, model = state_and_weights(tmp_path, suffix, anonymous)
    with pytest.raises(WeightsError) as caught:
        make(text()).copy_from(str(state))
    assert str(caught.value) == (
        f"{state} is a solver state, not weights; resume from it with --snapshot, or give its "
        "weights nets/snap_iter_7.caffemodel"
    )
    with pytest.raises(WeightsError) as caught:
        schema.read_state(model)
    beside = "" if anonymous else f", or resume from {state}"
    assert str(caught.value) == (
        f"{model} holds weights, not a solver state; start from them with --weights{beside}"
    )


def test_caffes_own_files(tmp_path: Path) -> None:
    for path in GOLDEN.glob("*.caffemodel*"):
        shutil.copy(path, tmp_path / "weights")
        with pytest.raises(WeightsError, match="holds weights, not a solver state"):
            schema.read_state(tmp_path / "weights")
    for path in GOLDEN.glob("*.solverstate*"):
        shutil.copy(path, tmp_path / "state")
        with pytest.raises(WeightsError, match=r"is a solver state.*give its weights \S+"):
            schema.read_weights(tmp_path / "state")

"""Memory is planned before it is taken: what fits, what is refused, and what is then advised."""

from __future__ import annotations

from pathlib import Path

import pytest

from pycaffe_fire.backend import cpu_backend, host
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.cli import fire_train
from pycaffe_fire.errors import SolverError
from pycaffe_fire.net.summary import facts
from pycaffe_fire.report.summary import summary_lines
from pycaffe_fire.solver import capacity
from tests.solver.solver_cases import body, make, rows_layer, write_rows

GIB = 2**30


def need(**parts: int) -> capacity.Need:
    return capacity.Need(**{**dict.fromkeys(capacity.Need.__annotations__, 0), **parts})


def refusal(need: capacity.Need, free: int, monkeypatch: pytest.MonkeyPatch, ranks: int = 1) -> str:
    monkeypatch.setattr(capacity, "free_bytes", lambda backend: free)
    with pytest.raises(SolverError) as told:
        capacity.check_fits(need, NumPyBackend(), 64, ranks)
    return str(told.value)


def test_the_way_out_is_a_batch_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    text = refusal(need(blobs=20 * GIB, parameters=GIB), 8 * GIB, monkeypatch)
    assert "a batch of 64 does not fit into memory: training needs another 21 GiB" in text
    assert "this machine has 8.0 GiB free" in text
    assert "use batch_size 16 with iter_size 4" in text  # 32 would still need 11 GiB
    assert "for each of 2 ranks" in refusal(need(blobs=5 * GIB), 8 * GIB, monkeypatch, ranks=2)


def test_a_smaller_batch_is_not_always_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    text = refusal(need(blobs=GIB, parameters=9 * GIB), 8 * GIB, monkeypatch)
    assert "not even one sample fits" in text
    text = refusal(need(blobs=GIB, tests=9 * GIB), 8 * GIB, monkeypatch)
    assert "give the test nets a smaller batch_size" in text


def test_what_fits_or_nobody_knows_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for free in (GIB, None):
        monkeypatch.setattr(capacity, "free_bytes", lambda backend, free=free: free)
        capacity.check_fits(need(blobs=GIB), NumPyBackend(), 64, 1)


def test_a_solver_is_refused_before_it_takes_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "free_bytes", lambda backend: 20_000)
    taken: list[int] = []
    monkeypatch.setattr(
        "pycaffe_fire.net.net.Net.share_gradients", lambda net: taken.append(1), raising=True
    )
    with pytest.raises(SolverError, match="a batch of 8 does not fit .* use batch_size"):
        make(rows_layer(write_rows(tmp_path), 8) + body(), share_gradients=True)
    assert not taken


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "CGROUPS", tmp_path)
    backend = cpu_backend(1)
    whole = capacity.free_bytes(backend)
    assert whole is not None and whole > 2**20
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("5000\n")
    assert host._cgroup_bytes() is None
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.stat").write_text("anon 1000\nfile 3000\n")
    assert capacity.free_bytes(backend) == 1000000 - 5000 + 3000


def test_facts_of_a_net(tmp_path: Path) -> None:
    solver = make(rows_layer(write_rows(tmp_path), 8) + body(), leaves=2)
    found = facts(solver.net)
    by_name = {layer.name: layer for layer in found.layers}
    assert by_name["conv"].tops == [[4, 16, 5, 5]]
    assert by_name["conv"].parameters == 16 * 2 * 9 + 16
    assert by_name["conv"].multiply_adds == 4 * 25 * 16 * 2 * 9
    assert by_name["ip"].multiply_adds == 4 * 4 * 16 * 3 * 3
    assert by_name["relu"].memory == 0 and by_name["pool"].memory >= 4 * 4 * 16 * 9
    assert (found.samples, found.data[0].batch, found.data[0].records) == (4, 8, 24)
    taken = capacity.need_of(solver.net, 2, [], 1, shared=True)
    text = "\n".join(summary_lines(solver.net, taken, 1))
    assert "batch 4 (one of 2 leaves)" in text
    # Two leaves, each forward and twice that backward, and two operations per multiply-add.
    assert f"One iteration: {12e-9 * found.multiply_adds:.4g} GFLOP over 1 rank" in text


def test_summary_trains_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(capacity, "free_bytes", lambda backend: 1000)  # shown all the same
    Path("net.prototxt").write_text(
        'name: "small"\n' + rows_layer(write_rows(tmp_path), 8) + body()
    )
    Path("solver.prototxt").write_text(
        'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 5 solver_mode: CPU '
        "test_iter: 1 test_interval: 5"
    )
    before = sorted(tmp_path.iterdir())
    assert fire_train.main(["--solver", "solver.prototxt", "--summary"]) == 0
    out, err = capfd.readouterr()
    assert "small, batch 8" in out and "conv (Convolution)" in out and "8x16x5x5" in out
    assert f"Parameters: {16 * 2 * 9 + 16 + 4 * 144 + 4:,}" in out
    assert not err and sorted(tmp_path.iterdir()) == before
    assert fire_train.main(["--solver", "solver.prototxt"]) == 1
    assert "solver.prototxt: a batch of 8 does not fit into memory" in capfd.readouterr().err

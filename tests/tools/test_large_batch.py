"""The experiments on large batches: their data, nets, solvers and tables; no run."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from large_batch import cifar10_data, run
from PIL import Image

from pycaffe_fire import schema
from pycaffe_fire.solver.large_batch import keep_epochs

FOLDER = Path(run.__file__).parent


def test_pngs_become_cifars_binary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar10_data, "PER_FILE", 2)
    pixels = np.random.default_rng(1).integers(0, 256, (6, 2, 1024, 3), np.uint8)
    for name, image in zip([*cifar10_data.TRAINING, "test_batch"], pixels, strict=True):
        Image.fromarray(image).save(tmp_path / f"{name}.png")
    (tmp_path / "train_lables.json").write_text(json.dumps([*range(10)]))
    (tmp_path / "test_lables.json").write_text("[7, 8]")
    cifar10_data.write_binary(tmp_path, tmp_path)
    third = np.fromfile(tmp_path / "data_batch_3.bin", np.uint8).reshape(2, 3073)
    assert third[:, 0].tolist() == [4, 5]
    assert third[1, 1:].reshape(3, 32, 32)[2, 5, 9] == pixels[2, 1, 5 * 32 + 9, 2]
    assert np.fromfile(tmp_path / "test_batch.bin", np.uint8)[[0, 3073]].tolist() == [7, 8]


def test_the_narrow_net_is_one() -> None:
    net = schema.parse_text(run.narrow_quick(), schema.NetParameter())
    outputs = [n.convolution_param.num_output for n in net.layer if n.type == "Convolution"]
    assert outputs == [16, 16, 32]
    data = [n for n in net.layer if n.type == "Data"]
    assert [n.transform_param.scale for n in data] == [1 / 128, 1 / 128]
    assert all(n.convolution_param.weight_filler.type == "xavier" for n in net.layer[2:3])


@pytest.mark.parametrize("name", run.EXPERIMENTS)
def test_every_case_has_a_solver_whose_large_batch_ends_with_a_test(name: str) -> None:
    experiment = run.EXPERIMENTS[name]
    for case in experiment.cases:
        param = schema.parse_text(run.solver_text(experiment, case, 3), schema.SolverParameter())
        assert param.random_seed == 3
        assert param.max_iter % param.test_interval == 0
        if "--batch" in case.flags:
            factor = int(case.flags[case.flags.index("--batch") + 1]) / experiment.batch
            keep_epochs(param, factor)
            assert param.max_iter // param.test_interval + 1 == experiment.tests
            assert param.max_iter * factor == pytest.approx(case.length * experiment.iterations)


def test_a_longer_run_steps_as_much_later() -> None:
    longer = next(case for case in run.QUICK.cases if case.length == 3 and case.settings)
    text = run.solver_text(run.QUICK, longer, 1)
    param = schema.parse_text(text, schema.SolverParameter())
    assert (param.max_iter, list(param.stepvalue), param.rampup_interval) == (18000, [14400], 900)
    assert run.QUICK.epochs(longer)[-1] == 36


def test_runs_go_on_where_they_were_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = (run.Case("small", (), 2, "black"), run.Case("large", (), 1, "tab:blue"))
    experiment = dataclasses.replace(run.QUICK, cases=cases)
    path, seen = tmp_path / "results.json", list[tuple[str, int]]()

    def train(experiment: object, case: run.Case, seed: int, folder: Path) -> list[float]:
        if len(seen) == 2:
            raise KeyboardInterrupt
        seen.append((case.name, seed))
        return [0.1, 0.5 + seed / 10]

    monkeypatch.setattr(run, "train", train)
    with pytest.raises(KeyboardInterrupt):
        run.run_all(experiment, tmp_path, path)
    assert seen == [("small", 1), ("large", 1)]
    seen.clear()
    run.run_all(experiment, tmp_path, path)
    assert seen == [("small", 2)]
    assert json.loads(path.read_text()) == {
        "small": [[0.1, 0.6], [0.1, 0.7]],
        "large": [[0.1, 0.6]],
    }


def test_the_table_and_the_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    results = json.loads((FOLDER / "digits.json").read_text())
    lines = run.table(results)
    assert lines[1].split()[-3:] == ["99.45,", "99.42,", "99.20"]
    assert lines[2].startswith("batch 1024, rate x 16") and "-0.02" in lines[2]
    run.draw(run.DIGITS, results, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000

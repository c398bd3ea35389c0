"""The training bench: statistics of disturbed samples, synthetic nets, and a run on a tiny net."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire import schema
from pycaffe_fire.backend.blob import Blob
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.backend.plans import Window
from tests.backend.op_cases import onednn

BENCH = Path(__file__).parents[2] / "tools" / "bench"

TINY = """
name: "tiny"
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  transform_param { crop_size: 12 } data_param { source: "nowhere" batch_size: 6 } }
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TEST }
  data_param { source: "nowhere" batch_size: 9 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 8 kernel_size: 3 pad: 1 group: 1
    weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "norm" type: "LRN" bottom: "conv" top: "norm" }
layer { name: "pool" type: "Pooling" bottom: "norm" top: "pool"
  pooling_param { pool: MAX kernel_size: 3 stride: 2 } }
layer { name: "ave" type: "Pooling" bottom: "norm" top: "ave"
  pooling_param { pool: AVE kernel_size: 3 stride: 2 } }
layer { name: "both" type: "Concat" bottom: "pool" bottom: "ave" top: "both" }
layer { name: "drop" type: "Dropout" bottom: "both" top: "dropped" }
layer { name: "fc" type: "InnerProduct" bottom: "dropped" top: "fc"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss"
  loss_weight: 0.5 }
layer { name: "right" type: "Accuracy" bottom: "fc" bottom: "label" top: "right" }
"""


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Imports a module of tools/bench as its programs do."""
    monkeypatch.syspath_prepend(str(BENCH))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(BENCH)):
            del sys.modules[name]


@pytest.fixture
def tiny(tmp_path: Path) -> Any:
    path = tmp_path / "tiny.prototxt"
    path.write_text(TINY)
    return str(path)


def samples(timing: Any, *rows: Any) -> Any:
    return [
        timing.Sample({"forward": forward, "backward": backward}, 2 * forward, foreign)
        for forward, backward, foreign in rows
    ]


def test_disturbed_samples_do_not_count(bench: Any) -> None:
    timing = bench("timing")
    taken = samples(timing, (1, 3, 0.0), (9, 9, 0.5), (2, 2, 0.05), (2, 4, 0.01))
    result = timing.summarize(taken, want=3, tolerance=0.06)
    assert (result.samples, result.clean, result.foreign) == (3, 3, 0.05)
    assert result.median == {"forward": 2, "backward": 3, "pass": 4, "step": 4, "cpu": 4}
    assert result.minimum == {"forward": 1, "backward": 2, "pass": 4, "step": 4, "cpu": 2}


def test_too_few_clean_samples_fall_back_to_the_least_disturbed(bench: Any) -> None:
    timing = bench("timing")
    taken = samples(timing, (1, 1, 0.9), (2, 2, 0.2), (3, 3, 0.0), (4, 4, 0.4))
    result = timing.summarize(taken, want=3, tolerance=0.06)
    assert (result.samples, result.clean, result.foreign) == (3, 1, 0.4)
    assert result.median["pass"] == 6


def test_the_step_has_the_update_in_it(bench: Any) -> None:
    timing = bench("timing")
    sample = timing.Sample({"forward": 1.0, "backward": 2.0, "update": 0.5}, 7.0, 0.0)
    result = timing.summarize([sample], want=1, tolerance=0.06)
    assert (result.median["pass"], result.median["step"]) == (3.0, 3.5)


class Scripted:
    """A contender whose samples are all disturbed, or none."""

    def __init__(self, name: Any, foreign: Any) -> None:
        self.name, self.foreign, self.asked = name, foreign, 0

    def ask(self, command: Any) -> Any:
        self.asked += 1
        return {"phases": {"forward": 1.0, "backward": 1.0}, "cpu": 2.0, "foreign": self.foreign}


def test_contenders_take_turns_and_a_busy_machine_ends_at_the_limit(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    timing = bench("timing")
    monkeypatch.setattr(timing, "wait_for_quiet", lambda tolerance, until: None)
    calm, busy = Scripted("calm", 0.0), Scripted("busy", 0.8)
    assert len(timing.interleave([calm], 4, 0.06, limit=60)["calm"]) == 4
    taken = timing.interleave([calm, busy], 3, 0.06, limit=0.0)
    assert len(taken["calm"]) == len(taken["busy"]) >= 3


def test_a_sample_is_long_enough_and_means_over_its_steps(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    timing = bench("timing")
    monkeypatch.setattr(timing, "SAMPLE_SECONDS", 0.02)
    count = 0

    def step(watch: Any) -> None:
        nonlocal count
        count += 1
        timing.time.sleep(0.002)
        watch.lap("forward")

    repeater = timing.Repeater(step)
    repeater.warm()
    count = 0
    sample = repeater.sample()
    assert 3 <= count <= 10
    assert 0.002 <= sample["phases"]["forward"] < 0.02


def test_a_contender_that_dies_is_named(bench: Any, tmp_path: Path) -> None:
    timing = bench("timing")
    script = tmp_path / "dies.py"
    script.write_text("import sys; sys.stdin.readline(); sys.exit(3)")
    with (
        timing.Worker("the mayfly", str(script), timing.environment(1)) as worker,
        pytest.raises(timing.BenchError, match=r"the mayfly.*'build'.*exit code 3"),
    ):
        worker.ask("build")


def test_data_layers_become_inputs(bench: Any, tiny: Any) -> None:
    synthetic = bench("synthetic")
    net = synthetic.synthetic_net(tiny, None, None)
    data = net.layer[0]
    assert [layer.name for layer in net.layer].count("data") == 1
    assert data.type == "Input"
    assert [list(s.dim) for s in data.input_param.shape] == [[6, 3, 12, 12], [6]]
    net = synthetic.synthetic_net(tiny, 4, [1, 20, 20])
    assert list(net.layer[0].input_param.shape[0].dim) == [4, 1, 20, 20]


def test_dropout_is_cut_out_and_its_readers_rewired(bench: Any, tiny: Any) -> None:
    synthetic = bench("synthetic")
    net = synthetic.without_dropout(synthetic.synthetic_net(tiny, None, None))
    assert "Dropout" not in {layer.type for layer in net.layer}
    assert list(next(layer for layer in net.layer if layer.name == "fc").bottom) == ["both"]


def test_steps_for_torch_join_batch_norm_and_scale(bench: Any) -> None:
    synthetic = bench("synthetic")
    net = schema.parse_text(
        """layer { name: "bn" type: "BatchNorm" bottom: "x" top: "y" }
        layer { name: "scale" type: "Scale" bottom: "y" top: "y" }
        layer { name: "relu" type: "ReLU" bottom: "y" top: "y" }
        layer { name: "pool" type: "Pooling" bottom: "y" top: "p"
          pooling_param { pool: AVE kernel_h: 2 kernel_w: 3 stride: 2 } }
        layer { name: "relu2" type: "ReLU" bottom: "p" top: "p" }""",
        schema.NetParameter(),
    )
    weights = {"bn": [[[4], 0, 0, 0]], "scale": [[[4], 4, 1, 1]]}
    joined, relu, pool, relu_of_pool = synthetic.steps(net, weights)
    assert (joined["kind"], joined["weights"]) == ("batch_norm", weights["scale"])
    assert relu["in_place"] and not relu_of_pool["in_place"]
    assert (pool["kind"], pool["options"]["kernel_size"]) == ("average_pool", [2, 3])


def test_it_runs_and_writes_its_figures(
    bench: Any,
    tiny: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    train = bench("train")
    target = tmp_path / "out.json"
    run = [tiny, "--threads", "1", "--repeat", "1", "--limit", "0", "--json", str(target)]
    assert train.main(run) == 0
    assert "tiny batch 6, 1 thread: " in capfd.readouterr().out
    ours = json.loads(target.read_text())["contenders"]["pycaffe_fire"]
    assert 0 < ours["minimum"]["pass"] <= ours["median"]["pass"]
    assert np.isclose(
        ours["median"]["pass"], ours["median"]["forward"] + ours["median"]["backward"], rtol=0.5
    )


def test_the_profile_names_every_layer_that_costs(
    bench: Any, tiny: Any, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "profile.json"
    run = [tiny, "--threads", "1", "--repeat", "2", "--limit", "0", "--profile"]
    assert bench("train").main([*run, "--json", str(target)]) == 0
    timed = {row[0]: row[2] for row in json.loads(target.read_text())["layers"]}
    assert timed["conv"] > 0 and timed["fc"] > 0 and timed["relu"] == 0
    assert "by type" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("crop_size: 12", ""), "no crop_size"),
        (("batch_size: 6", ""), "give --batch"),
        (('type: "LRN"', 'type: "LNR"'), "unknown layer type"),
    ],
)
def test_bad_nets_are_explained(
    bench: Any, tiny: Any, capfd: pytest.CaptureFixture[str], change: Any, message: str
) -> None:
    Path(tiny).write_text(TINY.replace(*change))
    assert bench("train").main([tiny, "--limit", "0"]) == 1
    error = capfd.readouterr().err
    assert message in error and "Traceback" not in error


def test_missing_torch_is_one_sentence(
    bench: Any, tiny: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    train = bench("train")
    monkeypatch.setattr(train.importlib.util, "find_spec", lambda name: None)
    assert train.main([tiny, "--against", "torch"]) == 1
    assert capfd.readouterr().err == (
        "error: --against torch needs PyTorch: pip install torch==2.13.0\n"
    )


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_torch_computes_the_same_and_is_timed(
    bench: Any, tiny: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out.json"
    # To compile takes a minute.
    run = [tiny, "--threads", "1", "--repeat", "1", "--limit", "0", "--against", "torch"]
    run += ["--without", "torch.compile"]
    assert bench("train").main([*run, "--json", str(target)]) == 0
    assert "4 gradients agree" in capfd.readouterr().out
    report = json.loads(target.read_text())
    assert set(report["ratios"]) == {"torch default", "torch channels_last"}
    steps = {name: report["ratios"][name]["step"] for name in report["ratios"]}
    assert report["best"] == min(steps, key=lambda name: steps[name])
    assert all(c["peak_memory"] > 0 for c in report["contenders"].values())


def test_caffes_way_computes_the_same_and_is_timed(
    bench: Any, tiny: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("numba")
    target = tmp_path / "out.json"
    run = [tiny, "--threads", "1", "--repeat", "1", "--limit", "0", "--against", "caffe"]
    assert bench("train").main([*run, "--json", str(target)]) == 0
    assert "4 gradients agree" in capfd.readouterr().out
    report = json.loads(target.read_text())
    assert report["ratios"]["as Caffe 1.0"]["step"] > 0 and report["best"] is None


def test_another_checkout_is_raced(
    bench: Any, tiny: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target, here = tmp_path / "out.json", Path(__file__).resolve().parents[2]
    run = [tiny, "--threads", "1", "--repeat", "1", "--limit", "0", "--json", str(target)]
    assert bench("train").main([*run, "--before", str(here)]) == 0
    report = json.loads(target.read_text())
    assert report["ratios"][f"before ({here.name})"]["step"] > 0
    assert bench("train").main([*run, "--before", str(tmp_path)]) == 1
    assert f"error: --before {tmp_path}: there is no" in capfd.readouterr().err


def test_bfloat16_is_raced_or_its_cpu_refused(
    bench: Any, tiny: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out.json"
    run = [tiny, "--threads", "1", "--repeat", "1", "--limit", "0", "--against", "bfloat16"]
    status, multiplies = bench("train").main([*run, "--json", str(target)]), onednn(1)
    if multiplies.library.multiplies_bf16:  # type: ignore[attr-defined]
        assert status == 0 and json.loads(target.read_text())["ratios"]["bfloat16"]["step"] > 0
    else:
        assert status == 1 and not target.exists()
        assert "error: bfloat16: this CPU multiplies no bfloat16" in capfd.readouterr().err


def test_caffes_way_has_groups_strides_and_borders(bench: Any) -> None:
    pytest.importorskip("numba")
    found = []
    for backend in (bench("caffe_path").CaffeBackend(), NumPyBackend()):
        random = np.random.default_rng(1)
        x, w, b, y = (
            Blob(backend, shape) for shape in [(2, 4, 7, 8), (6, 2, 3, 2), (6,), (2, 6, 4, 5)]
        )
        for blob in (x, w, b):
            blob.data[...] = random.standard_normal(blob.shape)
        window = Window((3, 2), (2, 2), (1, 1), (1, 1))
        plan = backend.convolution(x, w, b, y, window, groups=2, relu=0.0)
        plan.forward()
        y.diff[...] = random.standard_normal(y.shape)
        plan.backward(data=True, weights=True, bias=True)
        found.append([y.data, x.diff, w.diff, b.diff])
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_allclose(theirs, ours, atol=1e-5)

"""Iterations replayed from a captured graph: the same weights as without, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire import schema
from pycaffe_fire.backend.cuda import graph as graph_module
from pycaffe_fire.backend.cuda import launch
from pycaffe_fire.errors import SolverError
from pycaffe_fire.solver import replay
from pycaffe_fire.solver.events import Trained
from tests.cuda.cuda_nets import SOLVER, inception, lenet, solver_of
from tests.cuda.test_storage import stored_as

ADAM = (
    'type: "Adam" base_lr: 0.001 lr_policy: "inv" gamma: 0.1 power: 0.75 momentum: 0.9 '
    "momentum2: 0.99 delta: 1e-6 weight_decay: 0.0005 random_seed: 3 snapshot_after_train: false"
)


def trained(net: Any, backend: Any, settings: str, graph: bool | None, iterations: int = 7) -> Any:
    """The losses and weights, and the solver that made them."""
    losses: list[Any] = []
    solver = solver_of(
        net, backend, settings, cuda_graph=graph,
        observers=[lambda event: losses.append(getattr(event, "loss", None))],
    )  # fmt: skip
    solver.step(iterations)
    found = {
        f"{name}[{i}]": np.array(blob.data)
        for name, blobs in solver.net.params.items()
        for i, blob in enumerate(blobs)
    }
    found["history"] = np.concatenate([slot.get() for slot in solver.history])
    found["losses"] = np.array([float(loss) for loss in losses if loss is not None])
    solver.close()
    return found, solver


def launches(solver: Any) -> int:
    return solver._replay._recorder._graph.launches


@pytest.mark.parametrize("settings", [SOLVER, ADAM], ids=["sgd", "adam"])
@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_the_same_bits(settings: str, kind: str, cuda: Any, tmp_path: Path) -> None:
    """Dropout draws anew, rates fall and Adam's correction changes from iteration to iteration."""
    net = inception(tmp_path)
    if kind != "float32":
        stored_as(net, kind)
        net.global_grad_scale_adaptive = True
    want, _ = trained(net, cuda, settings, graph=False)
    got, solver = trained(net, cuda, settings, graph=True)
    assert launches(solver) == 7 - replay.WARM_UP
    assert len(want["losses"]) == 7 and len(set(want["losses"])) == 7
    for name, values in want.items():
        np.testing.assert_array_equal(got[name], values, err_msg=name)


def test_numbers_that_stay_as_recorded_would_be_found_out(
    cuda: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    want, _ = trained(lenet(tmp_path), cuda, ADAM, graph=False)
    monkeypatch.setattr(
        graph_module.GraphRecorder, "launched", lambda self, *_: self._expected is not None
    )
    got, _ = trained(lenet(tmp_path), cuda, ADAM, graph=True)
    assert not np.array_equal(got["ip1[0]"], want["ip1[0]"])
    monkeypatch.undo()


def test_masks_that_stay_as_recorded_would_be_found_out(
    cuda: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    want, _ = trained(inception(tmp_path), cuda, SOLVER, graph=False)
    monkeypatch.setattr(graph_module, "STEP", "no such number")
    got, _ = trained(inception(tmp_path), cuda, SOLVER, graph=True)
    assert not np.array_equal(got["scores[0]"], want["scores[0]"])


def test_replays_wait_for_copies_only_and_launch_next_to_nothing(
    cuda: Any, cupy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solver = solver_of(inception(tmp_path), cuda, cuda_graph=True)
    solver.step(3)
    launched: list[str] = []
    launch_one = launch.Kernel._launch
    monkeypatch.setattr(
        launch.Kernel,
        "_launch",
        lambda self, *args: launched.append(self.name) or launch_one(self, *args),
    )
    cupy.cuda.waits.clear()
    solver.step(4)
    places = [wait.rpartition("/")[2].partition(":")[0] for wait in cupy.cuda.waits]
    assert places == ["uploads.py"] * 4
    # The two inputs are copied into their place, and the update gives its numbers.
    assert launched == ["weighted_sum", "weighted_sum", "sgd"] * 4
    solver.close()


def test_whoever_looks_or_writes_in_between_is_heard(cuda: Any, tmp_path: Path) -> None:
    """Displays, outputs, and weights set from outside, also into an array that is held."""
    settings = SOLVER.replace("display: 0", "display: 3")
    found = []
    for graph in (False, True):
        events: list[Any] = []
        solver = solver_of(
            inception(tmp_path), cuda, settings, cuda_graph=graph, observers=[events.append]
        )
        solver.step(5)
        held = solver.net.params["scores"][0].data
        held[...] *= 0.5
        seen = [np.array(solver.net.blobs[name].data) for name in ("join", "loss")]
        solver.step(6)
        seen += [np.array(held), np.array(solver.net.blobs["join"].data)]
        shown = [o.value for e in events for o in getattr(e, "outputs", [])]
        found.append((seen, shown, [float(e.loss) for e in events if isinstance(e, Trained)]))
        solver.close()
    assert len(found[0][1]) == 4
    assert found[0][1:] == found[1][1:]
    for want, got in zip(found[0][0], found[1][0], strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_test_net_in_between_changes_nothing(cuda: Any, tmp_path: Path) -> None:
    settings = f"{SOLVER} test_iter: 1 test_interval: 2"
    want, _ = trained(lenet(tmp_path), cuda, settings, graph=False)
    got, _ = trained(stored_as(lenet(tmp_path), "float16"), cuda, settings, graph=True)
    same, _ = trained(stored_as(lenet(tmp_path), "float16"), cuda, settings, graph=False)
    for name, values in same.items():
        np.testing.assert_array_equal(got[name], values, err_msg=name)
        assert not np.array_equal(values, want[name])


REFUSED = {
    "leaves": ("", {"leaves": 2}, "several leaves or ranks"),
    "iter_size": ("iter_size: 2", {}, "iter_size above 1"),
    "clip": ("clip_gradients: 1", {}, "clip_gradients looks at the gradients"),
    "larc": ("larc: true", {}, "larc and local_lr_auto"),
    "skip": ("", {"on_nan": "skip"}, "--on-nan skip looks at the gradients"),
    "debug": ("debug_info: true", {}, "debug_info looks at every blob"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_runs_that_cannot_be_recorded(case: Any, cuda: Any, tmp_path: Path) -> None:
    settings, options, reason = case
    with pytest.raises(SolverError, match=f"--cuda-graph cannot record this run: {reason}"):
        solver_of(inception(tmp_path), cuda, f"{SOLVER} {settings}", cuda_graph=True, **options)


def test_a_layer_that_needs_the_host_is_named(cuda: Any, tmp_path: Path) -> None:
    net = inception(tmp_path)
    text = 'layer { name: "keep" type: "Filter" bottom: "average" bottom: "label" top: "kept" }'
    net.layer.add().CopyFrom(schema.parse_text(text, schema.NetParameter()).layer[0])
    solver = solver_of(net, cuda, cuda_graph=True)
    with pytest.raises(SolverError, match=r'layer "keep" \(Filter\) cannot be recorded, because'):
        solver.step(5)
    assert solver.iter == replay.WARM_UP
    solver.close()


def test_where_nobody_asked_the_run_goes_on(
    cuda: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A layer that needs the host, and inputs of another shape: the same numbers as without."""
    net = inception(tmp_path)
    text = 'layer { name: "keep" type: "Filter" bottom: "average" bottom: "label" top: "kept" }'
    net.layer.add().CopyFrom(schema.parse_text(text, schema.NetParameter()).layer[0])
    want, _ = trained(stored_as(net, "float16"), cuda, ADAM, graph=False)
    with caplog.at_level("INFO", "pycaffe_fire"):
        got, _ = trained(net, cuda, ADAM, graph=None)
    assert caplog.text.count("Not recorded as a CUDA graph") == 1
    assert 'layer "keep" (Filter) cannot be recorded' in caplog.text
    for name, values in want.items():
        np.testing.assert_array_equal(got[name], values, err_msg=name)


def test_the_reason_is_told(cuda: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "pycaffe_fire"):
        solver = solver_of(lenet(tmp_path), cuda, f"{SOLVER} clip_gradients: 1", cuda_graph=None)
    assert "Not recorded as a CUDA graph: clip_gradients looks" in caplog.text
    assert solver._replay is None


def test_hooks_are_called_in_every_iteration(cuda: Any, tmp_path: Path) -> None:
    solver = solver_of(lenet(tmp_path), cuda, cuda_graph=None)
    seen: list[int] = []
    solver.net.hooks.after_forward.append(seen.append)
    solver.step(4)
    assert seen == list(range(len(solver.net.layers))) * 4
    solver.net.hooks.after_forward.remove(seen.append)
    solver.step(2)
    assert launches(solver) == 2


def test_inputs_that_change_their_shape(cuda: Any) -> None:
    text = """
    layer { name: "in" type: "Input" top: "in" input_param { shape { dim: 2 dim: 3 } } }
    layer { name: "ip" type: "InnerProduct" bottom: "in" top: "ip"
      inner_product_param { num_output: 1 } }
    layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 1 }
    """
    solver = solver_of(schema.parse_text(text, schema.NetParameter()), cuda, cuda_graph=True)
    solver.step(4)
    solver.net.blobs["in"].reshape(4, 3)
    with pytest.raises(SolverError, match=r'shapes of inputs \("in"\) have changed'):
        solver.step(1)


def test_only_gpus_record(tmp_path: Path) -> None:
    from pycaffe_fire.backend.numpy import NumPyBackend

    with pytest.raises(SolverError, match="--cuda-graph needs a GPU"):
        solver_of(lenet(tmp_path), NumPyBackend(), cuda_graph=True)

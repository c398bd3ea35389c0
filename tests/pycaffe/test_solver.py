"""pycaffe's solvers: steps, callbacks, updates by hand, snapshots, shared weights, Ctrl-C."""

from __future__ import annotations

import gc
import os
import signal
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from tests.pycaffe.cases import DUMMY, TRAIN, solver_file

DATA = np.random.RandomState(0).rand(16, 3, 1, 1).astype(np.float32)
LABELS = np.arange(16) % 2


def weights(solver: Any) -> Any:
    return solver.net.params["ip"][0].data


def fed_solver(settings: str = "", **options: Any) -> Any:
    solver: Any = caffe.SGDSolver(solver_file(settings, TRAIN), **options)
    for net in solver.leaves.nets:
        net.set_input_arrays(DATA, LABELS)
    return solver


def test_the_attributes_of_a_solver(here: Path) -> None:
    solver = caffe.SGDSolver(here / solver_file("test_iter: 2 test_interval: 5 max_iter: 7"))
    assert solver.iter == 0 and solver.type == "SGD" and len(solver.test_nets) == 1
    assert solver.param.max_iter == 7 and solver.param.base_lr == pytest.approx(0.1)
    assert solver.param.layer_wise_reduce
    solver.solve()
    assert solver.iter == 7


def test_the_class_decides_the_type_as_in_pycaffe(caplog: Any) -> None:
    solver = caffe.SGDSolver(solver_file('type: "Adam"'))
    assert solver.param.type == "SGD" and len(solver.history) == 1
    assert 'asks for type "Adam", but the class for "SGD" is used' in caplog.text


def test_lr_is_that_of_the_next_iteration() -> None:
    solver = caffe.SGDSolver(solver_file('lr_policy: "step" gamma: 0.1 stepsize: 2'))
    rates = []
    for _ in range(3):
        rates.append(solver.lr)
        solver.step(1)
    assert rates == pytest.approx([0.1, 0.1, 0.01])


def test_a_message_makes_a_solver_and_stays_as_it_is() -> None:
    param = schema.read_solver(solver_file())
    before = param.SerializeToString()
    assert type(caffe.get_solver(param)) is caffe.SGDSolver
    caffe.NesterovSolver(param)
    assert param.SerializeToString() == before


def test_callbacks_come_in_order_and_may_change_gradients() -> None:
    solver = fed_solver()
    seen: list[tuple[Any, ...]] = []
    before = weights(solver).copy()

    def on_gradients() -> None:
        seen.append(("gradients", solver.iter, bool(solver.net.params["ip"][0].diff.any())))
        for blobs in solver.net.params.values():
            for blob in blobs:
                blob.diff[...] = 0

    solver.add_callback(lambda: seen.append(("start", solver.iter)), on_gradients)
    solver.step(2)
    assert seen == [("start", 0), ("gradients", 0, True), ("start", 1), ("gradients", 1, True)]
    assert (weights(solver) == before).all()


def test_one_function_is_called_when_gradients_are_ready() -> None:
    solver, norms = fed_solver(), []
    solver.add_callback(lambda: norms.append(np.abs(solver.net.params["ip"][0].diff).sum()))
    solver.step(3)
    assert len(norms) == 3 and all(norms)
    with pytest.raises(RuntimeError, match="takes functions, got 5"):
        solver.add_callback(5)


def test_callbacks_see_the_whole_batch_s_gradients_with_leaves_too() -> None:
    seen: dict[int, list[Any]] = {}
    for leaves in (1, 4):
        solver = fed_solver(leaves=leaves)
        seen[leaves] = []

        def look(solver: Any = solver, found: list[Any] = seen[leaves]) -> None:
            found.append(solver.net.params["ip"][0].diff.copy())
            solver.net.params["ip"][0].diff[...] *= 0.5

        solver.add_callback(look)
        solver.step(3)
        seen[leaves].append(weights(solver).copy())
        solver.close()
    for one, four in zip(*seen.values(), strict=True):
        np.testing.assert_allclose(four, one, rtol=1e-4, atol=1e-6)


def test_callbacks_change_no_bits() -> None:
    plain, watched = fed_solver(leaves=2), fed_solver(leaves=2)
    watched.add_callback(lambda: None, lambda: watched.net.params["ip"][0].diff.sum())
    for solver in (plain, watched):
        solver.step(5)
        solver.close()
    assert (weights(plain) == weights(watched)).all()


def test_apply_update_in_a_loop_of_one_s_own_is_what_step_does() -> None:
    by_hand, by_step = fed_solver("momentum: 0.9"), fed_solver("momentum: 0.9")
    by_step.step(4)
    for _ in range(4):
        by_hand.net.clear_param_diffs()
        by_hand.net.forward()
        by_hand.net.backward()
        by_hand.apply_update()
    np.testing.assert_array_equal(weights(by_hand), weights(by_step))
    assert by_hand.iter == 0
    with pytest.raises(RuntimeError, match="2 leaves.*add_callback"):
        fed_solver(leaves=2).apply_update()


def test_forwards_in_between_take_the_next_batch() -> None:
    solver = fed_solver()
    solver.step(1)
    solver.net.forward()
    np.testing.assert_array_equal(solver.net.blobs["x"].data, DATA[4:8])
    solver.net.forward()
    np.testing.assert_array_equal(solver.net.blobs["x"].data, DATA[8:12])
    solver.step(1)
    np.testing.assert_array_equal(solver.net.blobs["x"].data, DATA[4:8])  # training goes on


def test_snapshot_and_restore(here: Path) -> None:
    solver = fed_solver('snapshot_prefix: "s" momentum: 0.9')
    solver.step(3)
    solver.snapshot()
    assert Path("s_iter_3.caffemodel").exists()
    solver.step(2)
    again = fed_solver('snapshot_prefix: "s" momentum: 0.9')
    again.restore(here / "s_iter_3.solverstate")
    assert again.iter == 3
    again.step(2)
    np.testing.assert_array_equal(weights(again), weights(solver))


def test_share_weights() -> None:
    solver = fed_solver()
    net = caffe.Net("net.prototxt", caffe.TEST)
    solver.share_weights(net)
    solver.step(2)
    assert (net.params["ip"][0].data == weights(solver)).all()
    net.params["ip"][1].data[...] = 7
    assert (solver.net.params["ip"][1].data == 7).all()


def test_a_trained_net_takes_weights_too_and_goes_on_training() -> None:
    solver, net = fed_solver(), caffe.Net("net.prototxt", caffe.TEST)
    net.params["ip"][0].data[...] = 2
    solver.net.share_with(net)
    assert (weights(solver) == 2).all()
    solver.step(1)
    assert (weights(solver) != 2).all() and (net.params["ip"][0].data == weights(solver)).all()
    with pytest.raises(ValueError, match="both nets are trained"):
        solver.net.share_with(fed_solver().net)


def test_nets_outlive_their_solver() -> None:
    solver = fed_solver()
    solver.step(1)
    net, gone = solver.net, weakref.ref(solver)
    del solver
    gc.collect()
    assert gone() is None
    net.forward()
    net.backward()
    assert net.params["ip"][0].diff.any()


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """SIGINT as Python has it; in a background job of a shell it would be ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_stops_between_iterations_and_training_goes_on(ctrl_c: None) -> None:
    solver, whole = fed_solver("momentum: 0.9"), fed_solver("momentum: 0.9")
    asked: list[bool] = []

    def interrupt() -> None:
        if solver.iter == 2 and not asked:
            asked.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    solver.add_callback(interrupt)
    with pytest.raises(KeyboardInterrupt):
        solver.step(10)
    assert solver.iter == 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    solver.step(7)
    whole.step(10)
    np.testing.assert_array_equal(weights(solver), weights(whole))


def test_a_second_ctrl_c_stops_at_once_and_the_solver_still_works(ctrl_c: None) -> None:
    solver, calls = fed_solver(), []

    def impatient() -> None:
        calls.append(solver.iter)
        if len(calls) == 1:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000):  # signals are seen between two lines
                pass

    solver.add_callback(impatient, lambda: None)
    with pytest.raises(KeyboardInterrupt):
        solver.step(5)
    assert solver.iter == 0
    solver.step(2)
    assert solver.iter == 2


def test_steps_in_another_thread_leave_signals_alone() -> None:
    solver = caffe.SGDSolver(solver_file(net=DUMMY))
    thread = threading.Thread(target=solver.step, args=(3,))
    thread.start()
    thread.join(60)
    assert solver.iter == 3


def test_ctrl_c_during_forward_leaves_the_net_usable(ctrl_c: None) -> None:
    net = fed_solver().net
    expected = net.forward()["loss"].copy()

    def interrupt(layer: int) -> None:
        if layer == 1:
            net.hooks.before_forward.clear()
            os.kill(os.getpid(), signal.SIGINT)

    net.before_forward(interrupt)
    step = net.context.step
    with pytest.raises(KeyboardInterrupt):
        net.forward()
    assert net.context.step == step  # the batch was not used up
    net.context.step = 0
    np.testing.assert_array_equal(net.forward()["loss"], expected)


def test_a_run_is_logged_as_caffe_does(caplog: Any) -> None:
    with caplog.at_level("INFO", "pycaffe_fire"):
        caffe.SGDSolver(solver_file("display: 2")).step(3)
    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if line.startswith("Iteration 2, lr = 0.1")]
    assert any(line.startswith("Iteration 2 (") and "/2 iters), loss" in line for line in lines)


CONVOLUTION = """
layer { name: "d" type: "DummyData" top: "x" top: "y" dummy_data_param {
  shape { dim: 8 dim: 3 dim: 9 dim: 9 } shape { dim: 8 }
  data_filler { type: "gaussian" } data_filler { value: 1 } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "conv" convolution_param {
  num_output: 16 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param {
  num_output: 4 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "loss" }
"""


def conv_solver() -> Any:
    """Its convolution's weights have a layout of their own while it trains."""
    settings = 'base_lr: 0.05 lr_policy: "fixed" random_seed: 5'
    param = schema.parse_text(settings, schema.SolverParameter())
    schema.parse_text(CONVOLUTION, param.net_param)
    return caffe.SGDSolver(param)


def test_weights_held_by_the_caller_follow_the_training() -> None:
    solver = conv_solver()
    held = {n: [b.data for b in blobs] for n, blobs in solver.net.params.items()}
    start = held["conv"][0].copy()
    for _ in range(2):
        solver.step(2)
        seen = {n: [array.copy() for array in arrays] for n, arrays in held.items()}
        assert (seen["conv"][0] != start).any()
        for name, blobs in solver.net.params.items():
            for blob, array in zip(blobs, seen[name], strict=True):
                np.testing.assert_array_equal(array, blob.data)


def test_weights_written_through_a_held_array_count() -> None:
    solver, other = conv_solver(), conv_solver()
    held = solver.net.params["conv"][0].data
    for each in (solver, other):
        each.step(1)
    held[...] = 0.25
    other.net.params["conv"][0].data[...] = 0.25
    for each in (solver, other):
        each.step(1)
    for name, blobs in solver.net.params.items():
        for blob, same in zip(blobs, other.net.params[name], strict=True):
            assert (blob.data == same.data).all()

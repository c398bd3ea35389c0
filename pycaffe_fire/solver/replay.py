"""Iterations replayed from a recording (a CUDA graph): forward, backward and update as one launch.

The first iterations run as usual: they plan, compile and allocate. Then one is recorded; data
layers stay outside, and their batches are copied to where the recording reads them. Iterations
whose outputs are displayed run as usual too. A net whose layers look at the device's numbers while
they run cannot be recorded: with --cuda-graph that is an error that names the layer; where nobody
asked, the run goes on as usual.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..backend.plans import Recorder
from ..backend.tensor import PLAIN, Tensor
from ..errors import FireError, SolverError

if TYPE_CHECKING:
    from .solver import Solver

log = logging.getLogger("pycaffe_fire")

WARM_UP = 2  # iterations before one is recorded
INSTEAD = "; leave out --cuda-graph"


def replay_for(solver: Solver) -> Replay | None:
    """What the option cuda_graph asks for: True: a replay or an error; None: where it can be."""
    asked = solver.options.cuda_graph
    if asked is False or (asked is None and solver.backend.on_host):
        return None
    if solver.backend.on_host:
        raise SolverError("--cuda-graph needs a GPU: say which, as in --gpu 0")
    reason = _why_not(solver)
    if reason and asked:
        raise SolverError(f"--cuda-graph cannot record this run: {reason}")
    if reason:
        log.info("Not recorded as a CUDA graph: %s", reason)
    recorder = None if reason else solver.backend.recorder()
    return None if recorder is None else Replay(solver, recorder)


class Replay:
    def __init__(self, solver: Solver, recorder: Recorder) -> None:
        self._solver, self._net, self._recorder = solver, solver.net, recorder
        self._given_up = False
        self._usual = 0  # iterations run as usual
        self._loss: Any = None  # as recorded
        self._places: list[int] = []  # of the inputs when it was recorded
        self._states: list[tuple[Tensor, int]] = []  # of all tensors after the recorded work
        self._sources = [i for i, bottom in enumerate(self._net.bottoms) if not bottom]

    def takes(self, look: bool) -> bool:
        """Is the iteration that comes next to be replayed? `look`: its outputs are wanted."""
        watched = look or self._given_up or self._net.hooks.any
        if self._usual >= WARM_UP and not watched and self._solver.profiled:
            return True
        self._usual += 1
        return False

    def iterate(self) -> Any:
        """One whole iteration; returns its loss."""
        solver, context = self._solver, self._net.context
        context.step, context.leaf = solver.iter, context.own_leaves[0]
        self._net.backend.activate()
        for i in self._sources:
            self._net.layers[i].forward(self._net.bottoms[i], self._net.tops[i])
        try:
            if self._loss is None:
                self._record()
            else:
                self._check_inputs()
                with self._recorder.refreshing():
                    solver.apply_update()
        except SolverError as error:
            if solver.options.cuda_graph:
                raise
            return self._go_on_as_usual(str(error))
        self._recorder.replay(solver.iter)
        for tensor, state in self._states:  # a read since then may have moved them
            tensor.fresh = state
        return self._recorder.copied(self._loss)

    def _go_on_as_usual(self, reason: str) -> Any:
        """This iteration too, whose batch has been read already."""
        without = reason.removeprefix("--cuda-graph: ").removesuffix(INSTEAD)
        log.info("Not recorded as a CUDA graph: %s", without)
        self._given_up = True
        for tensor in self._tensors():  # what was recorded was not done: no copy holds a value
            tensor.fresh = tensor.fresh
        with self._without_sources():
            loss, _ = self._solver.compute_gradients(collect=False)
        self._solver.apply_update()
        return loss

    # Recording.

    def _record(self) -> None:
        tensors = self._tensors()
        for tensor in tensors:
            if tensor.fresh == PLAIN:  # written from outside
                tensor.sync()
            tensor.fresh = tensor.fresh  # copies in other types are made again, and recorded
        self._places = self._input_places()
        with self._naming(), self._without_sources():
            self._loss = self._recorder.record(self._body)
        self._states = [(tensor, tensor.fresh) for tensor in tensors]

    def _body(self) -> Any:
        loss, _ = self._solver.compute_gradients(collect=False)
        with self._recorder.changing():
            self._solver.apply_update()
        return loss

    def _tensors(self) -> list[Tensor]:
        blobs = [blob for tops in self._net.tops for blob in tops]
        blobs += [p.blob for p in self._net.parameters.items]
        found = {id(t): t for blob in blobs for t in (blob.value, blob.gradient)}
        return list(found.values())

    @contextmanager
    def _without_sources(self) -> Iterator[None]:
        """Data layers have run already."""
        layers = [self._net.layers[i] for i in self._sources]
        for layer in layers:
            setattr(layer, "forward", lambda *blobs: None)  # noqa: B010
        try:
            yield
        finally:
            for layer in layers:
                vars(layer).pop("forward", None)

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """An error names the layer that does what cannot be recorded."""
        running: list[int] = []
        hooks = (self._net.hooks.before_forward, self._net.hooks.before_backward)
        for hook in hooks:
            hook.append(running.append)
        try:
            yield
        except FireError:
            raise
        except Exception as error:
            layer = self._net.layers[running[-1]] if running else None
            where = f'layer "{layer.name}" ({layer.type})' if layer else "the update"
            raise SolverError(
                f"--cuda-graph: {where} cannot be recorded, because it needs the processor while "
                f"it runs ({type(error).__name__}: {error}){INSTEAD}"
            ) from error
        finally:
            for hook in hooks:
                hook.remove(running.append)

    # Inputs.

    def _input_places(self) -> list[int]:
        return [
            blob.value.buffer.data.ptr if blob.value.buffer is not None else 0
            for i in self._sources
            for blob in self._net.tops[i]
        ]

    def _check_inputs(self) -> None:
        if self._input_places() == self._places:
            return
        names = ", ".join(f'"{b.name}"' for i in self._sources for b in self._net.tops[i])
        raise SolverError(
            f"--cuda-graph: the shapes of inputs ({names}) have changed, but a recording has those "
            f"it was made with{INSTEAD}"
        )


def _why_not(solver: Solver) -> str | None:
    """What decides on the host, in the middle of an iteration, how it goes on."""
    p = solver.param
    reasons = {
        "several leaves or ranks sum their gradients on the host's word": solver.leaves.count > 1,
        "iter_size above 1 reads several batches in one iteration": p.iter_size > 1,
        "clip_gradients looks at the gradients before every update": p.clip_gradients >= 0,
        "larc and local_lr_auto keep numbers of their own": bool(p.larc or p.local_lr_auto),
        "a recording keeps the momentum and the weight decay it was made with": (
            p.momentum_policy != "fixed" or p.weight_decay_policy != "fixed"
        ),
        'lr_policy "plateau" looks at every loss': p.lr_policy == "plateau",
        f"--on-nan {solver.health.policy} looks at the gradients before every update": (
            solver.health.policy != "stop"
        ),
        f'solver type "{p.type}" has no kernel for GPUs, and array code keeps the rate that it was '
        "recorded with": not solver.update_step.recordable,
        "debug_info looks at every blob": bool(p.debug_info or solver.net.param.debug_info),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)

"""Caffe's Solver: when to train, test, display and snapshot. Arithmetic and ranks are elsewhere."""

from __future__ import annotations

import hashlib
import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict

from .. import schema
from ..backend.base import Backend
from ..backend.host import resident_bytes
from ..backend.plans import Segment
from ..backend.tensor import Array
from ..errors import SolverError
from ..layers import Context
from ..layers.feed import Feed
from ..net import Net, debug
from ..net.summary import BYTES, facts
from ..parallel.leaves import Leaves, Output
from ..schema.limits import impossible_number
from ..schema.proto import SolverParameter
from ..schema.verdicts import refusals
from ..version import VERSION
from .best import Best
from .capacity import check_fits, device_report, need_of
from .evaluation import Evaluation, Passed
from .events import (
    Evaluated,
    Event,
    Finished,
    NotFinite,
    Profiled,
    Started,
    Tested,
    Testing,
    Timed,
    Timeline,
    Trained,
)
from .health import ADVICE, Health
from .histograms import HistogramSampler
from .large_batch import known_to_fail
from .local_rates import local_rates
from .loss_scale import loss_scale
from .nets import FoundNet, find_test_nets, find_train_net
from .options import Action, SolverOptions, net_context, net_state
from .profile import Profiler
from .rates import Plateau, base_rate, learning_rate, tell_step
from .recurrent_state import RecurrentState
from .replay import replay_for
from .rules import RULES
from .schedules import weight_decay
from .snapshots import Carried, Snapshots
from .statistics import spans_leaves, warn_of_small_statistics
from .timeline import TimelineRecorder
from .timing import Stopwatch

log = logging.getLogger("pycaffe_fire")
dumps = logging.getLogger("pycaffe_fire.dumps")


class Solver:
    """Trains `net`; `step`, `solve`, `restore` and `snapshot` as in Caffe.

    The global batch is cut into leaves; gradients are summed over them along one fixed tree,
    across the communicator's ranks.
    """

    def __init__(self, param: SolverParameter, options: SolverOptions) -> None:
        self.param, self.options = param, options
        self.observers = list(options.observers)
        self.requested_action = options.requested_action
        self.backend, self.communicator = options.backend, options.communicator
        self.seed = options.seed
        self.iter = 0
        self.stopped_early = self.asked_to_stop = False
        for sentence in refusals(param):
            raise SolverError(f"the solver's {sentence}")
        self._check()
        self.rule = RULES[param.type](param)
        if dumps.isEnabledFor(logging.INFO):
            dumps.info("Initializing solver from parameters: \n%s", schema.to_text(param))
        self._build_nets()
        self._check_memory()
        self._prepare_update()
        self._prepare_state()
        if param.weights:
            self.load_weights(",".join(param.weights))
        if options.keep_best:
            self._follow(options.keep_best, options.stop_after)
        self._report_memory()
        log.info("Solver scaffolding done.")

    def _build_nets(self) -> None:
        options = self.options
        train = find_train_net(self.param, net_state(options))
        how = "from" if train.path else "specified in"
        log.info("Creating training net %s %s", how, train.origin)
        self.leaves = Leaves(
            lambda kind, context, lender: self._build(train, kind, context, lender),
            self.backend, self.communicator, options.leaves,
            net_context(options, self.param.iter_size), spans_leaves(train.param),
        )  # fmt: skip
        self.net = self.leaves.net
        self.net.backend.expect_backward()
        if self.communicator.rank == 0:
            warn_of_small_statistics(self.net)
        self.test_nets: list[Net] = []
        for found in find_test_nets(self.param):
            log.info("Creating test net (#%d) specified by %s", len(self.test_nets), found.origin)
            self.test_nets.append(self._build(found, self.backend, net_context(options), self.net))
        judging = self.param.eval_type, self.param.ap_version
        self._evaluations = [Evaluation(net, *judging) for net in self.test_nets]

    def _build(
        self, found: FoundNet, backend: Backend, context: Context, lender: Net | None
    ) -> Net:
        return self.options.make_net(
            found.param, backend=backend, context=context, lender=lender, source=found.path
        )

    def _check_memory(self) -> None:
        """Refuse a batch that does not fit before anything of it is allocated."""
        shared = self.options.share_gradients
        self._need = need_of(
            self.net, len(self.leaves.nets), self.test_nets, self.rule.slots, shared
        )
        batch = self.batch_size // self.param.iter_size
        check_fits(self._need, self.backend, batch, self.communicator.local_size)
        if shared:
            for net in self.leaves.nets:
                net.share_gradients()

    def _prepare_update(self) -> None:
        parameters = self.net.parameters
        self.history: list[Array] = [parameters.zeros() for _ in range(self.rule.slots)]
        segments = [
            Segment(p.start, p.stop, p.lr_mult, p.decay_mult) for p in parameters.items
        ]  # fmt: skip
        self.update_step = self.backend.update(self.rule.formula, segments)
        self._local_rates = local_rates(self.param, self.rule, self.backend, segments)
        self.loss_scale = loss_scale(self.net, self.backend, self.update_step)

    def _prepare_state(self) -> None:
        """What a run carries from one iteration to the next, and a snapshot to the next run."""
        self.plateau = Plateau(self.param)
        self.health = Health(self.leaves, self.options.on_nan)
        self._stopwatch = Stopwatch(self.leaves)
        self._profiler: Profiler | None = None
        self._recorder: TimelineRecorder | None = None
        self._sampler: HistogramSampler | None = None
        self._replay = replay_for(self)
        self.losses: deque[float] = deque(maxlen=self.param.average_loss)
        self.resumed = False  # the next step goes on in the middle of one
        self.best: Best | None = None
        self.tested: int | None = None  # the iteration whose tests are complete
        self._tests_from: list[int] | None = None  # see test_steps
        carried: dict[str, Carried | None] = {
            "plateau": self.plateau,
            "health": self.health,
            "local rates": self._local_rates,
            "loss scale": self.loss_scale,
            "memories": RecurrentState(self.leaves, self.test_nets) or None,
        }
        self.carried: dict[str, Carried] = {k: v for k, v in carried.items() if v is not None}
        self.snapshots = Snapshots(self, self.options.keep)

    def _report_memory(self) -> None:
        weights = BYTES * self.net.parameters.size
        batch = self.batch_size // self.param.iter_size // self.leaves.count
        report = device_report(self._need, weights, self.backend, batch)
        if report:
            log.info("%s", report)

    def _check(self) -> None:
        p = self.param
        if impossible := impossible_number(p):
            raise SolverError(impossible)
        if p.iter_size < 1 or p.average_loss < 1:
            raise SolverError("iter_size and average_loss must be at least 1")
        if p.max_iter < 0:
            raise SolverError(f"max_iter must not be negative, got {p.max_iter}")
        if p.regularization_type not in ("L1", "L2"):
            raise SolverError(
                f'regularization_type must be L1 or L2, got "{p.regularization_type}"'
            )
        learning_rate(p, 0)

    def tell(self, event: Event) -> None:
        for observer in self.observers:
            observer(event)

    # Running.

    def check_end(self) -> None:
        """Refuse a run of which nobody has said how long it is to be."""
        if not self.param.HasField("max_iter"):
            raise SolverError(
                "max_iter is missing: write how many iterations to train, or give --iterations N"
            )

    def solve(self, resume_file: str | None = None) -> None:
        """Train to max_iter, with snapshots and tests at their intervals and at the end."""
        self.check_end()
        if resume_file:
            self.restore(resume_file)
        self.snapshots.prepare()
        ranks = self.leaves.communicator
        self.tell(
            Started(
                self.net.name, self.param, self.iter, self.batch_size, self.leaves.count,
                self.backend.describe(), self.seed, ranks.size, ranks.describe(),
                facts(self.net), [facts(n) for n in self.test_nets], asdict(self._need),
                self.options.job, list(self.options.notes),
            )
        )  # fmt: skip
        if ranks.rank == 0:
            self._warn_of_settings()
        p = self.param
        if self.options.timeline:
            self._recorder = TimelineRecorder(self.leaves)
        if self.observers:
            self._profiler = Profiler(self.net)
            if ranks.rank == 0:  # all ranks have the same weights
                self._sampler = HistogramSampler(self.net.parameters, p.max_iter)
        while True:
            self.step(p.max_iter - self.iter)
            written = p.snapshot and self.iter % p.snapshot == 0 and not self.snapshots.failure
            if p.snapshot_after_train and not written:
                self._save(self.snapshots.attempt)
            if self.stopped_early or self.iter >= p.max_iter:
                break  # else the last snapshot was refused and rolled back
        if not self.stopped_early:
            self._conclude()
        self.tell(Finished(self.iter, self.stopped_early))
        self.snapshots.check_saved()

    def _warn_of_settings(self) -> None:
        """Caffe says nothing about runs that cannot learn, or did not when others tried."""
        if self.iter >= self.param.max_iter:
            log.warning(
                "nothing is left to train: this is iteration %d, max_iter is %d",
                self.iter, self.param.max_iter,
            )  # fmt: skip
        elif not base_rate(self.param):
            log.warning("base_lr is 0 or missing: the weights stay as they are")
        elif not any(weight for layer in self.net.layers for weight in layer.loss_weights):
            log.warning("the training net has no loss: its weights learn nothing")
        if known := known_to_fail(self.net.name, self.batch_size, base_rate(self.param)):
            log.warning("%s", known)

    def _conclude(self) -> None:
        """Show and test what the last update made, where that is due."""
        p = self.param
        if p.display and self.iter % p.display == 0:
            self.tell(Evaluated(self.iter, self._smooth(self.leaves.evaluate(self.iter))))
        if p.test_interval and self.iter % p.test_interval == 0:
            self.test_all()

    @property
    def _first_leaf(self) -> int:
        return self.net.context.own_leaves[0]

    @property
    def batch_size(self) -> int:
        """Samples in one iteration over all leaves, ranks and passes."""
        data = next((tops[0] for tops in self.net.tops if tops and tops[0].shape), None)
        per_leaf = data.shape[0] if data is not None else 0
        return per_leaf * self.leaves.count * int(self.param.iter_size)

    def step(self, iterations: int) -> None:
        """Train this many iterations, stopping early only if asked to."""
        stop = self.iter + iterations
        self.stopped_early = self.asked_to_stop = False
        if not self.resumed:
            self.losses.clear()
            self.tested = None
        self.resumed = False
        self._obey()  # what was asked while nets were built, or since the last step
        while self.iter < stop and not self.stopped_early:
            p = self.param
            if p.test_interval and self.iter % p.test_interval == 0 and self.tested != self.iter:
                if self.iter > 0 or p.test_initialization:
                    self.test_all()
                if self.stopped_early:
                    break
            if self._iterate():
                self._obey(snapshot_due=bool(p.snapshot) and self.iter % p.snapshot == 0)

    def _obey(self, snapshot_due: bool = False) -> None:
        """Do what is due and what was asked from outside since the last look."""
        asked = self.communicator.gather_now(self.requested_action().value)
        action = Action.STOP if Action.STOP.value in asked else Action(max(asked))
        if snapshot_due or action is Action.SNAPSHOT:
            self._save(self.snapshots.attempt)
        if action is Action.STOP:
            self.stopped_early = self.asked_to_stop = True

    @property
    def unfinished(self) -> bool:
        """Was this run stopped from outside, with iterations left to go on with?"""
        return self.asked_to_stop and self.iter < self.param.max_iter

    def _iterate(self) -> bool:
        """One iteration; False if it ended in a rollback, after which nothing is due."""
        if self._recorder is not None:
            self._recorder.begin()
        began = time.perf_counter()
        display = bool(self.param.display) and self.iter % self.param.display == 0
        for net in self.leaves.nets:  # as in Caffe, only where the iteration is displayed
            net.debug_info = display and self.param.debug_info and net is self.net
        self.communicator.set_status(f"iteration {self.iter}")
        self.health.begin()
        replay = self._replay if self._replay is not None and self._replay.takes(display) else None
        loss, outputs = (replay.iterate(), []) if replay else self.compute_gradients(display)
        squares = None if replay else self._squares_to_clip()
        computed = time.perf_counter()
        if replay or self.health.sound(loss, squares, due=display):
            loss = self._smooth(loss)
            self.plateau.observe(self.iter, loss)
            tell_step(self.param, self.iter)
            if replay is None:
                self._update_watched(squares, display)
        elif not self._recover(loss):
            return False
        ended = time.perf_counter()
        self._stopwatch.iteration(computed - began, ended - computed)
        self.communicator.set_status(f"iteration {self.iter} done", ended - began)
        rate = self.lr
        self.iter += 1
        self.tell(Trained(self.iter - 1, loss, rate, ended - began, display, outputs))
        if display:  # on all ranks alike: they gather
            self._tell_times()
        if self._recorder is not None and (spans := self._recorder.end(computed, ended)):
            self._recorder = None
            everyone = self.communicator.gather((spans, socket.gethostname()))
            ranks, hosts = zip(*everyone, strict=True)
            self.tell(Timeline(self.iter - 1, list(ranks), list(hosts)))
        if self._profiler is not None and (times := self._profiler.iteration()):
            self._profiler = None
            self.tell(Profiled(self.iter - 1, times))
        return True

    def _update_watched(self, squares: float | None, display: bool) -> None:
        """Update; now and then, where somebody looks on, say how the parameters are spread."""
        sampler = self._sampler
        if sampler is None or not display or not sampler.due(self.iter):
            self.apply_update(squares)
            return
        self.net.parameters.sync_weights()
        before = sampler.before()
        self.apply_update(squares)
        scale = 1.0 / (self.leaves.count * self.param.iter_size)
        self.tell(sampler.after(self.iter, before, self.leaves.gradients, scale))

    def _tell_times(self) -> None:
        feeds = [n for net in self.leaves.nets for n in net.layers if isinstance(n, Feed)]
        skipped = sum(feed.skipped for feed in feeds)
        report = self._stopwatch.take(), resident_bytes(), skipped
        times, memory, skips = zip(*self.communicator.gather(report), strict=True)
        self.tell(Timed(self.iter - 1, list(times), list(memory), list(skips)))

    @property
    def profiled(self) -> bool:
        """Has the time of every layer been taken, where it is wanted, and a timeline?"""
        return self._profiler is None and self._recorder is None

    def compute_gradients(self, collect: bool) -> tuple[float, list[Output]]:
        """This iteration's gradients over all leaves and ranks; returns loss and outputs."""
        if self.loss_scale is None:
            return self.leaves.run(self.iter, collect)
        for net in self.leaves.nets:
            net.scale_losses(self.loss_scale.factor)
        found = self.leaves.run(self.iter, collect)
        self.loss_scale.unscale(self.leaves.gradients)
        if collect and (news := self.loss_scale.news()):
            log.info("%s", news)
        return found

    @property
    def lr(self) -> float:
        """The learning rate of the iteration that is running, or comes next."""
        return self.health.rate * learning_rate(self.param, self.iter, self.plateau.seen)

    def _recover(self, loss: float) -> bool:
        """Do what on_nan says about an iteration that is not sound; True if training goes on."""
        what = self.health.describe(self.iter, loss)
        if self.health.policy == "skip":
            self.tell(NotFinite(self.iter, what, self.health.skip(what)))
            return True
        self._roll_back_or_stop(what)
        return False

    def _roll_back_or_stop(self, what: str) -> None:
        iteration = self.iter
        if self.health.policy != "rollback":
            self.tell(NotFinite(iteration, what, "stopped"))
            raise SolverError(f"{what}. Nothing of it was saved; {ADVICE}, or choose --on-nan skip")
        done = self.health.roll_back(what, self.snapshots.last, self.restore)
        self.tell(NotFinite(iteration, what, done))

    def _smooth(self, loss: float) -> float:
        """The mean of the last average_loss losses."""
        self.losses.append(loss)
        return sum(self.losses) / len(self.losses)

    def _squares_to_clip(self) -> float | None:
        """The sum of squared gradients, if they are to be clipped."""
        clips = self.param.clip_gradients >= 0
        return self.backend.sum_of_squares(self.leaves.gradients) if clips else None

    def apply_update(self, squares: float | None = None) -> None:
        """Clip, normalise, regularise and update, in one pass over the flat buffers.

        `squares` is the sum of squared gradients, if it is known already.
        """
        p = self.param
        if p.disabled_update:
            self.leaves.finish()
            return
        parameters, gradients = self.net.parameters, self.leaves.gradients
        parameters.sync_weights()
        scale = 1.0 / self.leaves.count
        if p.clip_gradients >= 0:
            if squares is None:
                squares = self.backend.sum_of_squares(gradients)
            norm = squares**0.5 * scale
            if norm > p.clip_gradients:
                factor = p.clip_gradients / norm
                scale *= factor
                log.info(
                    "Gradient clipping: scaling down gradients (L2 norm %g > %g) by scale factor "
                    "%g",
                    norm, p.clip_gradients, factor,
                )  # fmt: skip
        scale /= p.iter_size
        flat = parameters.weights, gradients, self.history, self.lr
        rates = self._local_rates(*flat, scale, self.iter) if self._local_rates else None
        self.update_step(
            *flat, weight_decay(p, self.iter), p.regularization_type == "L1", scale,
            self.rule.numbers(self.iter), rates,
        )  # fmt: skip
        parameters.updated()
        if self.net.debug_info:
            debug.update(self.net)
        self.leaves.finish()

    # Testing.

    def test_all(self) -> None:
        """Run all test nets; if that is interrupted, it is as if none had been run."""
        self._tests_from = self.test_steps
        results: list[list[Output]] = []
        while len(results) < len(self.test_nets) and not self.stopped_early:
            results.append(self.test(len(results)))
        before, self._tests_from = self._tests_from, None
        if self.stopped_early:
            self.test_steps = before
            return
        self.tested = self.iter
        if self.best is not None:
            if self.best.judge(self.iter, results):
                self._save(lambda: self.snapshots.attempt("best"))
            if self.best.exhausted:
                log.info("No better %s in %d tests: stopping", self.best, self.best.tests_since)
                self.stopped_early = True

    @property
    def test_steps(self) -> list[int]:
        """How many passes each test net has run, not counting tests that are under way."""
        return self._tests_from or [net.context.step for net in self.test_nets]

    @test_steps.setter
    def test_steps(self, steps: Sequence[int]) -> None:
        for net, step in zip(self.test_nets, steps, strict=True):
            net.context.step = step

    def test(self, index: int) -> list[Output]:
        """A test net's outputs over its test_iter passes, shared among the ranks unless one depends
        on the other; nothing if that was interrupted."""
        net, evaluation = self.test_nets[index], self._evaluations[index]
        net.context.collects = True
        try:
            own = self._own_passes(index, net, evaluation)
        finally:
            net.context.collects = False
        if own is None:
            log.info("Test interrupted.")
            return []
        everyone = sorted(one for part in self.communicator.gather(own) for one in part)
        loss = sum(one.loss for one in everyone) / len(everyone)
        outputs = evaluation.outputs([one.kept for one in everyone])
        if self.communicator.rank == 0:
            for layer, *left in zip(net.layers, *(one.findings for one in everyone), strict=True):
                if found := [each for each in left if each is not None]:
                    layer.write(found)
        shown = self.param.show_per_class_result
        self.tell(
            Tested(
                self.iter, index, outputs, loss if self.param.test_compute_loss else None,
                evaluation.precisions if shown else [],
            )
        )  # fmt: skip
        return outputs

    def _own_passes(self, index: int, net: Net, evaluation: Evaluation) -> list[Passed] | None:
        """This rank's share of a test; None if the test was interrupted."""
        passes, first, ranks = self.param.test_iter[index], net.context.step, self.communicator
        found = []
        # What a layer keeps for the next pass does not get to another rank.
        shares = 1 if any(layer.in_sequence for layer in net.layers) else ranks.size
        share = ranks.rank % shares
        for done in range(share, passes + share, shares):
            self._obey()  # as often on every rank, so that all stop together
            if self.stopped_early:
                return None
            if done >= passes:  # the last round is not for everybody
                break
            self.tell(Testing(self.iter, index, done, passes))
            self.communicator.set_status(f"iteration {self.iter}, pass {done} of test net {index}")
            net.context.step = first + done
            loss = float(net.run_forward())
            findings = [layer.findings() for layer in net.layers]
            found.append(Passed(done, loss, evaluation.keep(), findings))
        net.context.step = first + passes
        return found if share == ranks.rank else []  # else rank 0 has the same

    # Weights and snapshots.

    def load_weights(self, paths: str) -> None:
        """Copy weights by layer name from one or several (comma-separated) files."""
        files = [path.strip() for path in paths.split(",") if path.strip()]
        options = self.options
        self.net.copy_from(files, options.ignore_mismatch, options.allow_empty_weights)

    def snapshot(self) -> None:
        """Write weights and state, completely or not at all."""
        self._save(self.snapshots.write)

    def _save(self, write: Callable[[], bool]) -> None:
        if not self.health.weights_sound():
            self._roll_back_or_stop(f"iteration {self.iter}: the weights are not finite")
        elif write():
            self.health.saved()

    def restore(self, path: str) -> None:
        """Go on from a .solverstate, Caffe's or ours: iteration, history, weights and data."""
        self.snapshots.restore(path)

    def _follow(self, metric: str, patience: int | None) -> None:
        """Keep the weights with the best test output `metric`, as PREFIX_best; stop after
        `patience` tests without a better one. See Best."""
        self.best = Best(metric, patience, self.test_nets)
        self.carried["best"] = self.best
        log.info("Keeping the snapshot with the %s", self.best)

    def facts(self) -> dict[str, str]:
        """What all ranks of a job must have in common, as texts to compare."""
        blobs = [p.blob for p in self.net.parameters.items]
        digest = hashlib.sha256(b"".join(blob.value.host.tobytes() for blob in blobs)).hexdigest()
        feeds = [layer.fingerprint() for layer in self.net.layers if isinstance(layer, Feed)]
        return {
            "the version of pycaffe_fire": VERSION,
            "the solver": schema.to_text(self.param),
            "the net": schema.to_text(self.net.param),
            "the data": "; ".join(feeds),
            "the starting weights": f"{digest} at iteration {self.iter}",
        }

    def close(self) -> None:
        """Stop background work of all nets."""
        self.leaves.close()
        for net in self.test_nets:
            net.close()

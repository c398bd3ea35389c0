"""Convolutions planned by cuDNN's graph API, through NVIDIA's own nvidia-cudnn-frontend.

A plan is what cuDNN's heuristics recommend first among those that are allowed: always the same
bits, products of float32 numbers without tensor cores unless TF32 is wanted, and not more than
WORKSPACE bytes of memory besides. Only on request are plans timed against each other (plan_trials):
the choice depends on noise, and with it the bits.

Plans can be made for a device that is not there, from its description (tools/gpu_plans.py): so the
tests ask the real library about every convolution of the nets in models/. None has run yet.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ...errors import BackendError
from ..plans import Window
from ..tensor import FLOAT32

log = logging.getLogger("pycaffe_fire")

WORKSPACE = 2**28  # bytes at most
AXES = 2  # that its convolutions want at least
IMAGES, WEIGHTS, MAPS, BIAS = 1, 2, 3, 4  # the tensors of a plan
FORWARD, DATA, FILTER = "forward", "data gradient", "weight gradient"
INSTALL = "pip install nvidia-cudnn-frontend nvidia-cudnn-cu13 (or -cu12)"


class Refused(Exception):
    """cuDNN has no plan for this."""


def load() -> Any:
    """The frontend, with the library of a wheel or of the system behind it."""
    try:
        pathfinder = importlib.import_module("cuda.pathfinder")
        pathfinder.load_nvidia_dynamic_lib("cudnn")
        cudnn = importlib.import_module("cudnn")
        cudnn.backend_version()
    except Exception as error:  # a broken installation fails in many ways
        first = str(error).strip().splitlines()[:1]
        raise BackendError(f"cuDNN cannot be loaded ({' '.join(first)}); {INSTALL}") from error
    return cudnn


@dataclass(frozen=True)
class Product:
    """One of a convolution's three products: shapes, and what is fused to it."""

    direction: str
    kind: str  # how all of its tensors are stored
    images: tuple[int, ...]
    weights: tuple[int, ...]
    maps: tuple[int, ...]
    window: Window
    last: bool = False  # are channels last, of weights the second axis?
    pitch: int = 0  # of the maps' rows, where they are parts of a larger blob
    bias: bool = False
    relu: float | None = None  # the slope of negative numbers

    @property
    def fused(self) -> bool:
        return self.bias or self.relu is not None

    @property
    def elements(self) -> dict[int, int]:
        """How many numbers the memory of each tensor has."""
        shapes = self.shapes
        if not self.bias:
            del shapes[BIAS]
        return {
            n: 1 + sum((d - 1) * s for d, s in zip(shape, self.strides(n), strict=True))
            for n, shape in shapes.items()
        }

    @property
    def shapes(self) -> dict[int, tuple[int, ...]]:
        bias = (1, self.maps[1], *(1 for _ in self.maps[2:]))
        return {IMAGES: self.images, WEIGHTS: self.weights, MAPS: self.maps, BIAS: bias}

    def strides(self, tensor: int) -> list[int]:
        pitch = self.pitch if tensor == MAPS else 0
        return _strides(self.shapes[tensor], self.last, pitch)

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * prod(self.maps) * prod(self.weights[1:])


def products(
    kind: str, images: Sequence[int], weights: Sequence[int], maps: Sequence[int], window: Window,
    last: bool = False, pitch: int = 0,
) -> dict[str, Product]:  # fmt: skip
    """The three products of a convolution, its shapes lifted to as many axes as cuDNN wants."""
    axes = len(window.kernel)
    shapes = [(*s[:2], *_lifted(s[2:], 1)) for s in (images, weights, maps)]
    fills = ((window.kernel, 1), (window.stride, 1), (window.pad, 0), (window.dilation, 1))
    lifted = Window(*(_lifted(values, fill) for values, fill in fills)) if axes < AXES else window
    return {
        direction: Product(direction, kind, shapes[0], shapes[1], shapes[2], lifted, last, pitch)
        for direction in (FORWARD, DATA, FILTER)
    }


def _lifted(values: Iterable[int], fill: int) -> tuple[int, ...]:
    given = tuple(values)
    return (*given, *(fill for _ in range(AXES - len(given))))


@dataclass(frozen=True)
class CudnnPlan:
    """A product that cuDNN is ready to run."""

    product: Product
    graph: Any
    name: str  # of the engine, and its settings
    workspace: int  # bytes
    handle: Any

    @property
    def engine(self) -> str:
        return self.name.partition("_")[0]

    def run(self, tensors: dict[int, int], workspace: int) -> None:
        """Addresses of its tensors, by number, and of its workspace."""
        self.graph.execute(tensors, workspace or None, self.handle)


Choose = Callable[[Product, Iterator[CudnnPlan]], "CudnnPlan | None"]


def first_allowed(_: Product, allowed: Iterator[CudnnPlan]) -> CudnnPlan | None:
    return next(allowed, None)


class Planner:
    """Plans for one device, each made once: for the present one with a handle, or for one that
    `properties` describe."""

    def __init__(self, cudnn: Any, tf32: bool = False, handle: Any = None, properties: Any = None):
        self.cudnn, self.handle = cudnn, handle
        self.tf32 = tf32
        self._device = {"handle": handle} if handle else {"device_property": properties}
        self.choose: Choose = first_allowed
        self._plans: dict[Product, CudnnPlan | None] = {}
        self._notes: dict[tuple[Any, ...], tuple[str, ...]] = {}

    @classmethod
    def on_stream(cls, cudnn: Any, stream: Any, tf32: bool) -> Planner:
        """For the current device."""
        handle = cudnn.create_handle()
        cudnn.set_stream(handle=handle, stream=stream.ptr)
        return cls(cudnn, tf32, handle)

    @property
    def version(self) -> str:
        return str(self.cudnn.backend_version_string())

    def plan(self, product: Product) -> CudnnPlan:
        """A plan that is allowed; raises Refused where there is none.

        What is fused must be worth it: an engine of last resort, which is always there, is slower
        than a good one and another pass.
        """
        if product not in self._plans:
            self._plans[product] = self.choose(product, self._allowed(product))
        found = self._plans[product]
        if found is None:
            raise Refused(f"cuDNN has no {product.direction} for {product}")
        return found

    def _modes(self, product: Product) -> list[Any]:
        modes = self.cudnn.heur_mode
        return [modes.A] if product.fused else [modes.A, modes.FALLBACK]

    def notes_of(self, plan: CudnnPlan) -> tuple[str, ...]:
        """What cuDNN says of its engine; asked by barring one note after the other."""
        key = (plan.product.direction, plan.product.kind, plan.product.fused, plan.engine)
        if key not in self._notes:
            notes = self.cudnn.numerical_note.__members__.items()
            found = [name for name, note in notes if not self._allows(plan, note)]
            self._notes[key] = tuple(sorted(found))
        return self._notes[key]

    def _allows(self, plan: CudnnPlan, barred: Any) -> bool:
        graph = self._candidates(plan.product, self._modes(plan.product))
        if graph is None:
            return True
        graph.deselect_numeric_notes([barred])
        for index in range(graph.get_execution_plan_count()):
            if graph.get_plan_name_at_index(index) == plan.name:
                try:
                    graph.build_plan_at_index(index)
                except self.cudnn.cudnnGraphNotSupportedError:
                    return False
        return True

    def _candidates(self, product: Product, modes: Sequence[Any]) -> Any:
        """A graph with its ranked plans, none of them built; None if cuDNN refuses it."""
        try:
            graph = self._graph(product)
            graph.validate()
            graph.build_operation_graph()
            graph.create_execution_plans(list(modes))
        except self.cudnn.cudnnGraphNotSupportedError:
            return None
        return graph

    def _allowed(self, product: Product) -> Iterator[CudnnPlan]:
        """Plans as cuDNN ranks them, each with a graph of its own."""
        start = 0
        while (graph := self._candidates(product, self._modes(product))) is not None:
            graph.deselect_numeric_notes(self.barred(product.kind))
            graph.deselect_workspace_greater_than(WORKSPACE)
            index = self._build_from(graph, start)
            if index is None:
                return
            name, start = str(graph.get_plan_name_at_index(index)), index + 1
            size = int(graph.get_workspace_size_plan_at_index(index))
            yield CudnnPlan(product, graph, name, size, self.handle)

    def _build_from(self, graph: Any, start: int) -> int | None:
        """Build the first plan from this one on that can be; returns its number."""
        for index in range(start, graph.get_execution_plan_count()):
            try:
                graph.build_plan_at_index(index)
            except self.cudnn.cudnnGraphNotSupportedError:  # also those that were deselected
                continue
            return index
        return None

    def barred(self, kind: str) -> list[Any]:
        """Notes of engines that are not to be used."""
        notes = self.cudnn.numerical_note
        barred = [notes.NONDETERMINISTIC, notes.REDUCED_PRECISION_REDUCTION]
        if kind == FLOAT32 and not self.tf32:
            barred += [notes.TENSOR_CORE, notes.DOWN_CONVERT_INPUTS]
        return barred

    def _graph(self, product: Product) -> Any:
        types = self.cudnn.data_type
        stored = {FLOAT32: types.FLOAT, "float16": types.HALF, "bfloat16": types.BFLOAT16}
        kind = stored[product.kind]
        graph = self.cudnn.pygraph(
            io_data_type=kind, intermediate_data_type=types.FLOAT, compute_data_type=types.FLOAT,
            **self._device,
        )  # fmt: skip
        shapes = product.shapes

        def tensor(uid: int) -> Any:
            dim, stride = list(shapes[uid]), product.strides(uid)
            return graph.tensor(dim=dim, stride=stride, data_type=kind, uid=uid)

        pad, window = list(product.window.pad), product.window
        how = {
            "pre_padding": pad, "post_padding": pad, "stride": list(window.stride),
            "dilation": list(window.dilation),
        }  # fmt: skip
        if product.direction == FORWARD:
            uid, out = MAPS, graph.conv_fprop(image=tensor(IMAGES), weight=tensor(WEIGHTS), **how)
        elif product.direction == DATA:
            uid, out = IMAGES, graph.conv_dgrad(loss=tensor(MAPS), filter=tensor(WEIGHTS), **how)
        else:
            uid, out = WEIGHTS, graph.conv_wgrad(image=tensor(IMAGES), loss=tensor(MAPS), **how)
        if product.direction != FORWARD:  # not known from the other two, where strides skip
            out.set_dim(list(shapes[uid]))
        if product.bias:
            out = graph.bias(input=out, bias=tensor(BIAS))
        if product.relu is not None:
            out = graph.relu(input=out, negative_slope=product.relu or None)
        out.set_output(True).set_uid(uid).set_data_type(kind)
        out.set_dim(list(shapes[uid])).set_stride(product.strides(uid))
        return graph


def fused(product: Product, bias: bool, relu: float | None) -> Product:
    return replace(product, bias=bias, relu=relu)


def pitched(product: Product, pitch: int) -> Product:
    return replace(product, pitch=pitch)


def _strides(shape: Sequence[int], last: bool, pitch: int) -> list[int]:
    """Of (N, C, ...) in memory whose rows are `pitch` apart, or without gaps if that is 0: samples,
    or pixels where channels are last."""
    sizes = shape[2:]
    within = [prod(sizes[i + 1 :]) for i in range(len(sizes))]
    if not last:
        return [pitch or prod(shape[1:]), prod(sizes), *within]
    row = pitch or shape[1]
    return [row * prod(sizes), 1, *(row * step for step in within)]


class Engines:
    """What plans convolutions now: `chosen` is cuDNN, or None for our kernels."""

    def __init__(
        self, stream: Any, wanted: bool | None, tf32: bool,
        chooser: Callable[[Planner], Choose] = lambda _: first_allowed,
    ) -> None:  # fmt: skip
        """`wanted`: cuDNN everywhere, nowhere but where a layer asks, or where it loads."""
        self._stream, self._tf32, self._chooser = stream, tf32, chooser
        self._planner: Planner | None = None
        self._tried = False
        if wanted:
            self._planner = self._load()
        elif wanted is None:
            self._planner = self._find()
        self.chosen: Planner | None = self._planner

    @contextmanager
    def choosing(self, name: str) -> Iterator[None]:
        """Follow a layer's `engine` field; other names than these leave it as it is."""
        before = self.chosen
        if name == "CUDNN":
            self.chosen = self._find()
        elif name == "CAFFE":
            self.chosen = None
        try:
            yield
        finally:
            self.chosen = before

    def _find(self) -> Planner | None:
        """cuDNN, or None after a line that says why not."""
        if not self._tried and self._planner is None:
            try:
                self._planner = self._load()
            except BackendError as error:
                log.info("Convolutions run on our kernels: %s", error)
        return self._planner

    def _load(self) -> Planner:
        self._tried = True
        cudnn = load()
        try:
            planner = Planner.on_stream(cudnn, self._stream, self._tf32)
            planner.choose = self._chooser(planner)
            return planner
        except Exception as error:
            reason = f"cuDNN does not start ({error}); --no-cudnn does without it"
            raise BackendError(reason) from error

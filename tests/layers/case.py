"""One row of the layer table (`Case`), its forbidden variants (`Bad`), and running it (`Trial`).

A row names a layer type, its parameters and its bottoms; test_contract.py does the rest. Rows live
in rows_<family>.py as a list ROWS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pycaffe_fire import Net, schema
from pycaffe_fire.backend.base import Backend
from pycaffe_fire.backend.blob import Blob
from pycaffe_fire.errors import FireError, LayerError
from pycaffe_fire.layers import Context, Layer

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
Fill = str | Callable[[np.random.Generator, Shape], Array]


@dataclass(frozen=True)
class Bad:
    """A change to a row that must be refused with `error`, in words that match `match`.

    The net is built, filled and run forward; the text must name the layer, unless it is not the
    layer that refuses (the prototxt reader, a blob).
    """

    match: str  # a regular expression
    params: str | None = None
    shapes: tuple[Shape, ...] | None = None
    fill: tuple[Fill, ...] | None = None
    tops: int | None = None
    in_place: bool = False
    error: type[FireError] = LayerError

    @property
    def names_layer(self) -> bool:
        return issubclass(self.error, LayerError)

    def applied(self, case: Case) -> Case:
        changes = {
            field: getattr(self, field)
            for field in ("params", "shapes", "fill", "tops")
            if getattr(self, field) is not None
        }
        return replace(case, **changes)


@dataclass(frozen=True)
class Case:
    """A layer with everything the contract tests need to know of it."""

    name: str  # unique; the id of the test
    type: str
    params: str = ""  # what stands in the layer besides name, type, bottoms and tops
    shapes: tuple[Shape, ...] = ((2, 3, 4, 5),)  # of the bottoms
    fill: tuple[Fill, ...] = ("normal",)  # of each bottom (see FILLS), or one for all of them
    tops: int = 1
    top_shapes: tuple[Shape, ...] | None = None  # what reshape must make of them
    phase: str = "TRAIN"
    gradients: tuple[int, ...] | None = None  # bottoms that get one; None: all but labels
    top_gradients: tuple[int, ...] | None = None  # tops that give one; None: all
    numeric: bool = True  # gradients may be compared with differences
    kinks: tuple[float, ...] = ()  # values that inputs must stay clear of
    in_place: bool = False  # may run in place
    weights: int = 0  # how many weight blobs there are
    weight_fill: tuple[Fill, ...] = ("normal",)  # of each of them, or one for all
    learned: tuple[int, ...] | None = None  # weights that get a gradient; None: all
    batch: tuple[int, ...] | None = None  # bottoms with the batch on axis 0; None: all; (): none
    mixes_samples: bool = False  # a sample's top depends on the other samples
    random: bool = False  # draws numbers in this phase
    finite_at: tuple[float, ...] = (0.0, 1e4)  # inputs times these give finite results in float32
    tolerance: float = 2e-5  # of float32, relative to the largest value
    golden: tuple[str, ...] = ()  # reference cases of this layer (fnmatch patterns)
    bad: tuple[Bad, ...] = ()

    def fill_of(self, bottom: int) -> Fill:
        return self.fill[bottom if len(self.fill) > 1 else 0]

    def has_labels(self, bottom: int) -> bool:
        fill = self.fill_of(bottom)
        return isinstance(fill, str) and fill.startswith("labels")

    def has_free_values(self, bottom: int) -> bool:
        """May the values be multiplied by anything? Not labels, nor what a row made itself."""
        return self.fill_of(bottom) in FILLS

    @property
    def wants_gradient(self) -> tuple[int, ...]:
        if self.gradients is not None:
            return self.gradients
        return tuple(i for i in range(len(self.shapes)) if not self.has_labels(i))

    @property
    def learns(self) -> tuple[int, ...]:
        return tuple(range(self.weights)) if self.learned is None else self.learned

    @property
    def has_backward(self) -> bool:
        return bool(self.wants_gradient or self.learns)

    @property
    def batched(self) -> tuple[int, ...]:
        return tuple(range(len(self.shapes))) if self.batch is None else self.batch

    def with_batch(self, num: int) -> Case:
        """The same row with another batch size."""
        shapes = (
            (num, *shape[1:]) if i in self.batched else shape for i, shape in enumerate(self.shapes)
        )
        return replace(self, shapes=tuple(shapes), top_shapes=None)

    def values(self, seed: int = 0) -> list[Array]:
        """What to put into the bottoms."""
        rng = np.random.default_rng(seed)
        return [
            filled(self.fill_of(i), rng, shape, () if self.has_labels(i) else self.kinks)
            for i, shape in enumerate(self.shapes)
        ]


def _distinct(rng: np.random.Generator, shape: Shape) -> Array:
    """Far enough apart, and from 0, that a small step changes no maximum and no sign."""
    count = int(np.prod(shape))
    return ((rng.permutation(count) - count // 2 + 0.5) * (4 / max(count, 1))).reshape(shape)


FILLS: dict[str, Callable[[np.random.Generator, Shape], Array]] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "positive": lambda rng, shape: rng.uniform(0.5, 2.0, shape),
    "unit": lambda rng, shape: rng.uniform(0.05, 0.95, shape),
    "binary": lambda rng, shape: rng.integers(0, 2, shape).astype(float),
    "distinct": _distinct,
}


def filled(fill: Fill, rng: np.random.Generator, shape: Shape, kinks: Sequence[float]) -> Array:
    if callable(fill):
        return np.asarray(fill(rng, shape), float)
    if fill.startswith("labels"):  # "labels 5": classes 0 to 4
        return rng.integers(0, int(fill.split()[1]), shape).astype(float)
    values = FILLS[fill](rng, shape)
    for kink in kinks:
        near = np.abs(values - kink) < 0.02
        values = np.where(near, kink + np.where(values < kink, -0.03, 0.03), values)
    return values


def net_text(case: Case, feeds: Sequence[str], tops: Sequence[str]) -> str:
    """The prototxt of a net of Inputs, convolutions that `feeds` names, and the row's layer."""
    lines = ["force_backward: true"] if case.has_backward else []
    for i, (shape, feed) in enumerate(zip(case.shapes, feeds, strict=True)):
        dims = " ".join(f"dim: {d}" for d in shape)
        lines.append(
            f'layer {{ name: "in{i}" type: "Input" top: "in{i}" input_param {{ shape {{ '
            f"{dims} }} }} }}"
        )
        if feed.startswith("conv"):
            lines.append(
                f'layer {{ name: "{feed}" type: "Convolution" bottom: "in{i}" top: "{feed}" '
                f"convolution_param {{ num_output: {shape[1]} group: {shape[1]} "
                f"kernel_size: 1 bias_term: false weight_filler {{ value: 0.5 }} }} }}"
            )
    ends = [f'bottom: "{feed}"' for feed in feeds] + [f'top: "{top}"' for top in tops]
    lines.append(f'layer {{ name: "layer" type: "{case.type}" {" ".join(ends)} {case.params} }}')
    return "\n".join(lines)


class Trial:
    """A net of Inputs and the layer of a row, on one backend.

    `behind` puts channelwise convolutions before 4-D bottoms: a fast backend keeps their tops in
    a layout of its own. `relu` names the top of a ReLU behind the layer; with "out0" it runs in
    place, and a backend may fuse the two.
    """

    def __init__(
        self,
        case: Case,
        backend: Backend,
        in_place: bool = False,
        behind: bool = False,
        relu: str = "",
    ) -> None:
        self.case = case
        self.feeds = [
            f"conv{i}" if behind and len(shape) == 4 and i in case.wants_gradient else f"in{i}"
            for i, shape in enumerate(case.shapes)
        ]
        self.tops = self.feeds[:1] if in_place else [f"out{i}" for i in range(case.tops)]
        text = self._text()
        if relu:
            text += f'layer {{ name: "relu" type: "ReLU" bottom: "out0" top: "{relu}" }}'
            self.tops = [relu]
        param = schema.parse_text(text, schema.NetParameter())
        phase = schema.TRAIN if case.phase == "TRAIN" else schema.TEST
        self.net = Net(param, phase, backend=backend, context=Context())
        if case.has_backward:
            wanted = [i in case.wants_gradient for i in range(len(case.shapes))]
            self.net.propagate_down[self.index] = wanted
        rng = np.random.default_rng(99)
        for i, blob in enumerate(self.blobs):
            fill = case.weight_fill[i if len(case.weight_fill) > 1 else 0]
            blob.data[...] = np.float32(filled(fill, rng, blob.shape, ()))

    def _text(self) -> str:
        return net_text(self.case, self.feeds, self.tops)

    @property
    def index(self) -> int:
        return [layer.name for layer in self.net.layers].index("layer")

    @property
    def layer(self) -> Layer:
        return self.net.layers[self.index]

    @property
    def blobs(self) -> list[Blob]:
        """The layer's weight blobs, with NumPy arrays on any device."""
        return self.net.params.get("layer", [])

    @property
    def weights(self) -> list[Array]:
        """Copies of the weights."""
        return [np.array(blob.data) for blob in self.blobs]

    @weights.setter
    def weights(self, values: Sequence[Array]) -> None:
        for blob, value in zip(self.blobs, values, strict=True):
            blob.data[...] = value

    @property
    def learners(self) -> list[Blob]:
        """The bottoms that want a gradient, then the learned weights."""
        bottoms = [self.net.blobs[self.feeds[i]] for i in self.case.wants_gradient]
        return bottoms + [self.blobs[i] for i in self.case.learns]

    def put(self, values: Sequence[Array]) -> None:
        for i, value in enumerate(values):
            self.net.blobs[f"in{i}"].data[...] = value

    def resize(self, case: Case) -> None:
        """Give the bottoms the shapes of `case`, as a caller of Net.reshape would."""
        self.case = case
        for i, shape in enumerate(case.shapes):
            self.net.blobs[f"in{i}"].reshape(*shape)
        self.net.reshape()

    def forward(self, values: Sequence[Array] | None = None) -> list[Array]:
        """Copies of the tops."""
        if values is not None:
            self.put(values)
        self.net.run_forward()
        return [np.array(self.net.blobs[name].data) for name in self.tops]

    def projection(self, tops: Sequence[Array]) -> list[Array]:
        """Fixed random gradients for the tops: what their weighted sum is differentiated by."""
        rng = np.random.default_rng(7)
        signs = [rng.choice([-1.0, 1.0], top.shape) for top in tops]
        diffs = [np.float32(rng.uniform(0.5, 1.5, s.shape) * s) for s in signs]
        given = self.case.top_gradients
        return [d if given is None or i in given else 0 * d for i, d in enumerate(diffs)]

    def backward(self, diffs: Sequence[Array]) -> list[Array]:
        """Copies of the wanted gradients of bottoms, then of learned weights.

        The bottoms' gradients are poisoned first: a layer must overwrite them.
        """
        for i in self.case.wants_gradient:
            self.net.blobs[self.feeds[i]].diff[...] = np.nan
        for name, diff in zip(self.tops, diffs, strict=True):
            self.net.blobs[name].diff[...] = diff
        self.net.run_backward()
        return [np.array(blob.diff) for blob in self.learners]

    def both(self, values: Sequence[Array]) -> list[Array]:
        """Tops, then (where the layer has them) all gradients for one fixed projection."""
        tops = self.forward(values)
        if not self.case.has_backward:
            return tops
        self.net.clear_param_diffs()
        return tops + self.backward(self.projection(tops))

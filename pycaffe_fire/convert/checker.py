"""The self-check: every blob of a net against the same tensor in onnxruntime, or in OpenCV."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backend.blob import Blob
from ..errors import ConvertError, FireError
from ..net.net import Net
from .dims import BATCH, set_inputs
from .inputs import make_inputs
from .isolation import Isolated
from .preprocessing import Preprocessing
from .runtime import OnnxRuntime, Pieces, return_memory, without_nodes

Floats = NDArray[np.float32]
Array = NDArray[Any]

TOLERANCE = 1e-4  # of the largest value in a blob
FEW = 1e-3  # share of picked places that rounding may change
SLICE = 1 << 18  # numbers that are compared at once
_ON, _OFF = "optimised", "plain"
_SHAPED_BY_VALUES = ("DetectionOutput", "Filter")  # only a run tells the shapes of their tops
_PICKS = ("ArgMax", "Threshold")  # layers whose tops jump where scores are almost equal


@dataclass
class Row:
    """How far apart a layer's tops are, at worst."""

    layer: str
    type: str
    difference: float = 0.0
    where: str = ""  # runtime, batch size
    compared: bool = False

    @property
    def fine(self) -> bool:
        return self.difference <= TOLERANCE

    @property
    def distance(self) -> str:
        """In words."""
        if np.isfinite(self.difference):
            return f"by {self.difference:.1e} of its largest value, where {TOLERANCE:g} is allowed"
        return (
            "in shape, or because values overflow, as those of BatchNorms without statistics do: "
            "convert weights that were trained"
        )


@dataclass
class Result:
    """What a check found, layer by layer."""

    rows: list[Row]
    batches: list[int] = field(default_factory=list)
    runtimes: list[str] = field(default_factory=list)

    @property
    def worst(self) -> float:
        return max((row.difference for row in self.rows if row.compared), default=0.0)

    def refuse(self, what: str) -> None:
        """An error that names the first layer that differs, if any does."""
        if not any(row.compared for row in self.rows):
            raise ConvertError(f"{what}: no tensor in it has the name of a blob of the net")
        for row in self.rows:
            if not row.fine:
                raise ConvertError(
                    f'{what}: the first layer that differs is "{row.layer}" ({row.type}), '
                    f"{row.distance} ({row.where})"
                )


def difference(ours: Array, theirs: Array, picks: bool = False) -> float:
    """The largest difference relative to the largest value; infinite if shapes differ."""
    if ours.shape != theirs.shape:
        return np.inf
    if not ours.size:
        return 0.0
    flat, others = ours.reshape(-1), theirs.reshape(-1)
    slices = [slice(start, start + SLICE) for start in range(0, flat.size, SLICE)]
    largest = max(1e-6, *(_largest(flat[part]) for part in slices))
    worst, strange = 0.0, 0
    for part in slices:
        apart = _apart(flat[part], others[part])
        worst = max(worst, float(apart.max()))
        strange += int((apart > TOLERANCE * largest).sum())
    return 0.0 if picks and strange <= FEW * flat.size else worst / largest


def _largest(values: Array) -> float:
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def _apart(ours: Array, theirs: Array) -> Array:
    """Absolute differences; none between two that are not numbers, else they are infinite."""
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    with np.errstate(invalid="ignore", over="ignore"):
        found: Array = np.where(same, 0, np.abs(ours.astype(np.float64) - theirs))
    return np.nan_to_num(found, nan=np.inf, posinf=np.inf)


@dataclass
class Batch:
    """What the model is fed, and what the net makes of it."""

    feeds: dict[str, Floats]
    size: int
    outputs: dict[str, Floats]


class Checker:
    """Compares a net with a model at the net's own batch size and at one more.

    `tops` says which tensor each (layer, top) of the net is.
    """

    def __init__(
        self,
        net: Net,
        model: Any,
        arrays: dict[str, Array],
        tops: Mapping[tuple[int, int], str],
        preprocessing: Preprocessing | None = None,
    ) -> None:
        self.net, self.model, self.arrays, self.tops = net, model, arrays, tops
        self.preprocessing = preprocessing
        self.result = Result([Row(layer.name, layer.type) for layer in net.layers])
        self.outputs = [info.name for info in model.graph.output]
        self._last_use = self._uses()
        self._expected: list[Batch] | None = None
        self._base = {name: tuple(net.blobs[name].shape) for name in net.inputs}
        self._may_be_single = True
        try:
            set_inputs(net, self._shapes(0) or self._base)
        except FireError:
            self._may_be_single = False
            set_inputs(net, self._base)

    # Batches.

    def batches(self) -> Iterator[dict[str, Floats]]:
        """Feeds for the model; the net has their shapes and values."""
        for number in range(2):
            shapes = self._shapes(number)
            if shapes is None:
                break
            set_inputs(self.net, shapes)
            for layer in self.net.layers:  # a recurrent layer begins afresh
                if layer.memory is not None:
                    layer.memory.clear()
            yield self._fed(number)
        set_inputs(self.net, self._base)

    def _shapes(self, number: int) -> dict[str, tuple[int, ...]] | None:
        """Of the first or second batch: one sample and two, or what the net itself says and more;
        None if the model takes one batch size only."""
        infos = {info.name: info.type.tensor_type.shape.dim for info in self.model.graph.input}
        made = dict(self._base)
        for name, shape in self._base.items():
            dims = infos.get(name)
            if dims and shape and not dims[0].dim_value:
                single = dims[0].dim_param == BATCH and self._may_be_single
                made[name] = ((1 if single else shape[0]) + number, *shape[1:])
        return made if not number or made != self._base else None

    def _fed(self, number: int) -> dict[str, Floats]:
        embedded = self.preprocessing is not None
        feeds = make_inputs(self.net, number, pixels=embedded)
        for place, (name, values) in enumerate(feeds.items()):
            given = values
            if self.preprocessing is not None and place == 0:
                given = self.preprocessing.applied(values)
            self.net.blobs[name].data[...] = given
        size = next((len(v) for v in feeds.values() if v.ndim), 0)
        if size not in self.result.batches:
            self.result.batches.append(size)
        return feeds

    # onnxruntime.

    def without(self, kind: str) -> Checker:
        """The same without nodes that onnxruntime has no op for; results come together."""
        model, lost = without_nodes(self.model, kind)
        if not lost:
            return self
        tops = {place: name for place, name in self.tops.items() if name not in lost}
        made = Checker(self.net, model, self.arrays, tops, self.preprocessing)
        made.result = self.result
        return made

    def run_onnxruntime(self, path: str | None = None) -> Result:
        """Every top, with optimisations off and on; then the model as a whole.

        With `path` that is the file. The net's blobs and weights and the arrays are forgotten
        before it is opened, so that memory never holds both.
        """
        with OnnxRuntime() as runtime:
            for mode in (_OFF, _ON):
                self._expected = []
                for feeds in self.batches():
                    self._compare_all(runtime, mode, feeds)
                    self._expected.append(self._batch(feeds))
            if path is None:
                runtime.open_model(self.model, self.arrays)
            else:
                self._forget()
                runtime.open_file(path)
            for batch in self.expected():
                found = runtime.run(self.outputs, batch.feeds)
                self._compare_outputs(batch, found, "onnxruntime, file")
        self.result.runtimes.append("onnxruntime")
        return self.result

    def expected(self) -> list[Batch]:
        """What the net makes of each batch; computed once."""
        if self._expected is None:
            self._expected = []
            for feeds in self.batches():
                self.net.run_forward()
                self._expected.append(self._batch(feeds))
        return self._expected

    def _batch(self, feeds: dict[str, Floats]) -> Batch:
        names = [name for name in self.outputs if name in self.net.blobs]
        outputs = {name: self._host(self.net.blobs[name]).copy() for name in names}
        return Batch(feeds, self.result.batches[-1], outputs)

    def _compare_all(self, runtime: OnnxRuntime, mode: str, feeds: dict[str, Floats]) -> None:
        """Run both, a piece of the model and its layers at a time; what is used up is let go."""
        made = {name for node in self.model.graph.node for name in node.output}
        places = {place: name for place, name in self.tops.items() if name in made}
        sizes = {name: 4 * self.net.tops[index][top].count for (index, top), name in places.items()}
        ends = {name: index for (index, _), name in sorted(places.items())}
        pieces = Pieces(runtime, self.model, self.arrays, sizes)
        found: dict[str, Array] = {}
        index = 0
        for piece in pieces.run(feeds, ends, mode == _ON):
            found.update(piece)
            del piece
            while index < len(self.net.layers) and all(
                name in found for (i, _), name in places.items() if i == index
            ):
                self.net.run_forward(index, index)
                self._compare_layer(index, found, f"onnxruntime, {mode}")
                self._let_go(index)
                found = {name: value for name, value in found.items() if ends[name] > index}
                index += 1
        if index < len(self.net.layers):
            self.net.run_forward(index)

    def _compare_layer(self, index: int, found: Mapping[str, Array], where: str) -> None:
        for number, blob in enumerate(self.net.tops[index]):
            theirs = found.get(self.tops.get((index, number), ""))
            if theirs is not None:
                self._note((index, number), self._host(blob), theirs, where)

    def _let_go(self, index: int) -> None:
        """Free the blobs that no layer after this one uses, and what the layer keeps for a
        backward pass: a new plan has nothing of it."""
        if self.net.layers[index].type not in _SHAPED_BY_VALUES:
            self.net.layers[index].plan(self.net.bottoms[index], self.net.tops[index])
        for blob in (*self.net.bottoms[index], *self.net.tops[index]):
            if self._last_use.get(id(blob.value)) == index:
                _free(blob)

    def _uses(self) -> dict[int, int]:
        """The last layer that reads or writes each blob's value, but for inputs, outputs and
        weights, which stay."""
        last = {
            id(blob.value): index
            for index in range(len(self.net.layers))
            for blob in (*self.net.bottoms[index], *self.net.tops[index])
        }
        names = (*self.net.inputs, *self.net.outputs, *self.outputs)
        kept = [self.net.blobs[name] for name in names if name in self.net.blobs]
        kept += [blob for layer in self.net.layers for blob in layer.blobs]
        for blob in kept:
            last.pop(id(blob.value), None)
        return last

    def _forget(self) -> None:
        self.arrays.clear()
        self.net.parameters.weights = self.net.backend.empty(0)
        for blob in self.net.blobs.values():
            _free(blob)
        for layer in self.net.layers:
            for blob in layer.blobs:
                _free(blob)
        return_memory()

    def _compare_outputs(self, batch: Batch, found: Iterable[Array], where: str) -> None:
        for name, theirs in zip(self.outputs, found, strict=True):
            if name in batch.outputs:
                ours = batch.outputs[name]
                self._note(self._maker(name), ours, theirs, where, batch.size)

    def _maker(self, blob: str) -> tuple[int, int]:
        """The last layer that writes a blob, and which of its tops that is."""
        places = [
            (i, j)
            for i, tops in enumerate(self.net.tops)
            for j, each in enumerate(tops)
            if each.name == blob
        ]
        return places[-1]

    def _host(self, blob: Any) -> Array:
        return np.asarray(self.net.backend.host_view(blob).data)

    def _note(
        self, place: tuple[int, int], ours: Array, theirs: Array, where: str, batch: int = 0
    ) -> None:
        row = self.result.rows[place[0]]
        picks = row.type in _PICKS or (row.type == "Pooling" and place[1] == 1)
        if row.type == "DetectionOutput":  # OpenCV orders them by confidence
            ours, theirs = _in_order(ours), _in_order(theirs)
        found = difference(ours, np.asarray(theirs), picks)
        row.compared = True
        if found > row.difference or not row.where:
            row.difference = found
            row.where = f"{where}, batch {batch or self.result.batches[-1]}"

    # OpenCV.

    def run_opencv(self, path: str) -> Result:
        """The outputs of the file in OpenCV's dnn module."""
        with Isolated("OpenCV") as runtime:
            where = f"OpenCV {runtime.open({'path': os.path.abspath(path)})['version']}"
            for batch in self.expected():
                shaped = []
                found = runtime.run(self.outputs, batch.feeds)
                for name, theirs in zip(self.outputs, found, strict=True):
                    ours = batch.outputs.get(name, theirs)
                    same = ours.size == theirs.size  # OpenCV pads shapes with ones
                    shaped.append(theirs.reshape(ours.shape) if same else theirs)
                self._compare_outputs(batch, shaped, where)
        self.result.runtimes.append(where)
        return self.result


def _free(blob: Blob) -> None:
    """Take a blob's memory; it gets some again when it is used."""
    blob.value.clear()
    blob.value.bind(None)


def _in_order(detections: Array) -> Array:
    """Rows by image, label and confidence."""
    rows = detections.reshape(-1, detections.shape[-1])
    return rows[np.lexsort((-rows[:, 2], rows[:, 1], rows[:, 0]))].reshape(detections.shape)


def by_name(net: Net, model: Any) -> dict[tuple[int, int], str]:
    """The tops of a net that a model made elsewhere has tensors of the same name for."""
    names = {name for node in model.graph.node for name in node.output}
    last = {blob.name: (i, j) for i, tops in enumerate(net.tops) for j, blob in enumerate(tops)}
    found = {place: blob for blob, place in last.items() if blob in names}
    missing = [name for name in net.outputs if name not in names]
    if missing and len(missing) == len(net.outputs):
        raise ConvertError(
            f'the ONNX model has no output named like one of the net\'s ("{missing[0]}")'
        )
    return found


def table(result: Result, every: bool = False) -> list[str]:
    """Lines of a table with the largest difference of each layer."""
    rows = [row for row in result.rows if row.compared]
    if not rows:
        return []
    width = max(len(row.layer) for row in rows)
    kinds = max(len(row.type) for row in rows)
    return [
        f"{row.layer:<{width}}  {row.type:<{kinds}}  {row.difference:8.1e}"
        f"{'' if row.fine else '  <-- differs'}"
        for row in rows
        if every or not row.fine or row.difference > 0
    ]

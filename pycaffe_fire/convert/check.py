"""The self-check: every blob of a net against the same tensor in onnxruntime, or in OpenCV."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backend import available_cores
from ..errors import ConvertError, FireError
from ..net.net import Net
from . import onnx_file
from .dims import BATCH, set_inputs
from .inputs import make_inputs
from .libraries import need
from .preprocessing import Preprocessing

Floats = NDArray[np.float32]
Array = NDArray[Any]

TOLERANCE = 1e-4  # of the largest value in a blob
FEW = 1e-3  # share of picked places that rounding may change
CHUNK = 1 << 27  # bytes of tensors that are looked at together
_ON, _OFF = "optimised", "plain"
_PICKS = ("ArgMax", "Threshold")  # layers whose tops jump where scores are almost equal
_QUIET = 3  # onnxruntime's log level for errors alone


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
                    f'{what}: the first layer that differs is "{row.layer}" ({row.type}), by '
                    f"{row.difference:.1e} of its largest value ({row.where}); {TOLERANCE:g} is "
                    f"allowed"
                )


def difference(ours: Array, theirs: Array, picks: bool = False) -> float:
    """The largest difference relative to the largest value; infinite if shapes differ."""
    if ours.shape != theirs.shape:
        return np.inf
    if not ours.size:
        return 0.0
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    if same.all():
        return 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.where(same, 0, np.abs(ours.astype(np.float64) - theirs))
    finite = np.abs(ours[np.isfinite(ours)])
    largest = max(float(finite.max(initial=0.0)), 1e-6)
    if picks and (apart > TOLERANCE * largest).mean() <= FEW:
        return 0.0
    return float(np.nan_to_num(apart.max() / largest, nan=np.inf))


def open_model(
    model: Any, arrays: Mapping[str, Array], every: Iterable[str] = (), optimised: bool = True
) -> Any:
    """A model in onnxruntime, with more of its tensors as outputs; it reads no file. Large arrays
    are lent to it, so that there is no second copy of them."""
    onnx, runtime = need("onnx"), need("onnxruntime")
    options = _session_options(optimised)
    whole, lent = onnx.ModelProto(), {}
    whole.CopyFrom(model)
    for name, array in arrays.items():
        if array.nbytes > onnx_file.SMALL:
            tensor = onnx_file.outside(onnx, name, array, "lent", (0, array.nbytes))
            lent[name] = runtime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))
        else:
            tensor = onnx.numpy_helper.from_array(array, name)
        whole.graph.initializer.append(tensor)
    if lent:
        options.add_external_initializers(list(lent), list(lent.values()))
    known = {info.name for info in (*model.graph.output, *model.graph.input)}
    for name in every:
        if name not in known and name not in arrays:
            whole.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    return _open(whole.SerializeToString(), options)


def _session_options(optimised: bool) -> Any:
    runtime = need("onnxruntime")
    options, levels = runtime.SessionOptions(), runtime.GraphOptimizationLevel
    options.log_severity_level = _QUIET
    options.graph_optimization_level = (
        levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    )
    options.enable_mem_pattern = False  # shapes change
    options.enable_cpu_mem_arena = False  # which would keep what the largest run took
    options.intra_op_num_threads = available_cores()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _open(source: Any, options: Any) -> Any:
    runtime = need("onnxruntime")
    try:
        return runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as problem:
        reason = " ".join(str(problem).split())
        raise ConvertError(f"onnxruntime refuses the model: {reason}") from None


class Checker:
    """Compares a net with a model at the net's own batch size and at one more.

    `tops` says which tensor each (layer, top) of the net is.
    """

    def __init__(
        self,
        net: Net,
        model: Any,
        arrays: Mapping[str, Array],
        tops: Mapping[tuple[int, int], str],
        preprocessing: Preprocessing | None = None,
    ) -> None:
        self.net, self.model, self.arrays, self.tops = net, model, arrays, tops
        self.preprocessing = preprocessing
        self.result = Result([Row(layer.name, layer.type) for layer in net.layers])
        self.outputs = [info.name for info in model.graph.output]
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
        lost = {
            name for node in self.model.graph.node if node.op_type == kind for name in node.output
        }
        if not lost:
            return self
        model = type(self.model).FromString(self.model.SerializeToString())
        nodes = [node for node in model.graph.node if node.op_type != kind]
        outputs = [info for info in model.graph.output if info.name not in lost]
        if not outputs:
            make = need("onnx").helper.make_empty_tensor_value_info
            outputs = [make(name) for node in nodes[-1:] for name in node.output]
        for names, kept in ((model.graph.node, nodes), (model.graph.output, outputs)):
            del names[:]
            names.extend(kept)
        tops = {place: name for place, name in self.tops.items() if name not in lost}
        made = Checker(self.net, model, self.arrays, tops, self.preprocessing)
        made.result = self.result
        return made

    def run_onnxruntime(self, path: str | None = None) -> Result:
        """Every top, with optimisations off and on; then the file itself, as it will be used."""
        for mode in (_OFF, _ON):
            for feeds in self.batches():
                self._compare_all(mode, feeds)
        session = self._session(_ON, (), path)
        for feeds in self.batches():
            self.net.run_forward()
            found = session.run(self.outputs, feeds)
            self._compare_outputs(dict(zip(self.outputs, found, strict=True)), "onnxruntime, file")
        self.result.runtimes.append("onnxruntime")
        return self.result

    def _session(self, mode: str, every: Iterable[str], path: str | None = None) -> Any:
        """The file, or the model with more of its tensors as outputs, ready to run."""
        if path is not None:
            return _open(path, _session_options(mode == _ON))
        return open_model(self.model, self.arrays, every, mode == _ON)

    def _compare_all(self, mode: str, feeds: dict[str, Floats]) -> None:
        """Run both, some layers at a time: onnxruntime keeps all outputs until a run ends."""
        fixed = {*self.arrays, *(info.name for info in self.model.graph.input)}
        for first, last in self._chunks():
            chunk = {name for (i, _), name in self.tops.items() if first <= i <= last} - fixed
            names = sorted(chunk)
            found: dict[str, Array] = {}
            if names:
                session = self._session(mode, names)
                found = dict(zip(names, session.run(names, feeds), strict=True))
                del session
            for index in range(first, last + 1):
                self.net.run_forward(index, index)
                self._compare_layer(index, found, f"onnxruntime, {mode}")

    def _chunks(self) -> Iterator[tuple[int, int]]:
        """Runs of layers whose tops fit into memory together."""
        first, size = 0, 0
        for index, tops in enumerate(self.net.tops):
            size += sum(4 * blob.count for blob in tops)
            if size > CHUNK or index == len(self.net.tops) - 1:
                yield first, index
                first, size = index + 1, 0

    def _compare_layer(self, index: int, found: Mapping[str, Array], where: str) -> None:
        for number, blob in enumerate(self.net.tops[index]):
            theirs = found.get(self.tops.get((index, number), ""))
            if theirs is not None:
                self._note(index, number, self._host(blob), theirs, where)

    def _compare_outputs(self, found: Mapping[str, Array], where: str) -> None:
        for name, theirs in found.items():
            if name in self.net.blobs:
                index, number = self._maker(name)
                self._note(index, number, self._host(self.net.blobs[name]), theirs, where)

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

    def _note(self, index: int, number: int, ours: Array, theirs: Array, where: str) -> None:
        row = self.result.rows[index]
        picks = row.type in _PICKS or (row.type == "Pooling" and number == 1)
        if row.type == "DetectionOutput":  # OpenCV orders them by confidence
            ours, theirs = _in_order(ours), _in_order(theirs)
        found = difference(ours, np.asarray(theirs), picks)
        row.compared = True
        if found > row.difference or not row.where:
            row.difference = found
            row.where = f"{where}, batch {self.result.batches[-1]}"

    # OpenCV.

    def run_opencv(self, path: str) -> Result:
        """The outputs of the file in OpenCV's dnn module."""
        cv2 = need("cv2")
        if not hasattr(cv2, "dnn"):
            raise ConvertError("this OpenCV has no dnn module: pip install opencv-python-headless")
        where = f"OpenCV {cv2.__version__}"
        for feeds in self.batches():
            self.net.run_forward()
            try:
                net = cv2.dnn.readNetFromONNX(path)
                for name, values in feeds.items():
                    net.setInput(values, name)
                found = net.forward(self.outputs)
            except cv2.error as problem:
                reason = " ".join(str(problem).split())
                raise ConvertError(f"{where} refuses the model: {reason}") from None
            shaped = {}
            for name, theirs in zip(self.outputs, found, strict=True):
                ours = self.net.blobs[name]
                same = ours.count == theirs.size  # OpenCV pads shapes with ones
                shaped[name] = theirs.reshape(ours.shape) if same else theirs
            self._compare_outputs(shaped, where)
        self.result.runtimes.append(where)
        return self.result


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

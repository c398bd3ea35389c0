"""How the passes of a test become its outputs: as means, or for detections as mean average
precision (mAP)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from ..backend.tensor import on_host
from ..errors import SolverError
from ..layers.detection_evaluate import RESULT, DetectionEvaluate
from ..net import Net
from ..parallel.leaves import Output, output_names
from .average_precision import average_precision, check_version

log = logging.getLogger("pycaffe_fire")

CLASSIFICATION, DETECTION = "classification", "detection"
Pass: TypeAlias = "list[Any]"  # what is kept of one pass: an array for each output blob


@dataclass(order=True)
class Passed:
    """One pass of a test, whichever rank ran it."""

    number: int
    loss: float = field(compare=False)
    kept: Pass = field(compare=False)
    findings: list[Any] = field(compare=False)  # of each layer: what is to be written, or None


@dataclass
class Precisions:
    """Of one output of judged detections: its classes' average precisions by label."""

    output: str
    classes: dict[int, float]

    @property
    def mean(self) -> float:
        return sum(self.classes.values()) / len(self.classes)


class Evaluation:
    """Of a test net: `keep` what every pass gave, and make `outputs` of all passes.

    `kind` and `version` are eval_type and ap_version of a solver; without a kind, the net decides.
    """

    def __init__(self, net: Net, kind: str = "", version: str = "Integral") -> None:
        self._net, self._version = net, check_version(version)
        judged = {
            name
            for layer in net.layers
            if isinstance(layer, DetectionEvaluate)
            for name in layer.param.top
        }
        self._judged = [name for name in net.outputs if name in judged]
        kind = kind or (DETECTION if self._judged else CLASSIFICATION)
        where = net.source or "the test net"
        if kind not in (CLASSIFICATION, DETECTION):
            raise SolverError(f'unknown eval_type "{kind}"; known: {CLASSIFICATION}, {DETECTION}')
        if kind == DETECTION and not self._judged:
            raise SolverError(
                f'{where}: eval_type is "{DETECTION}", but no output comes from a '
                "DetectionEvaluate layer; add one, or leave out eval_type"
            )
        if kind == CLASSIFICATION and self._judged:
            raise SolverError(
                f'{where}: output "{self._judged[0]}" judges detections; say '
                f'eval_type: "{DETECTION}" in the solver'
            )
        self.precisions: list[Precisions] = []

    def keep(self) -> Pass:
        """What counts of the pass that the net has just run."""
        return [on_host(self._net.blobs[name].data).copy() for name in self._net.outputs]

    def numbers(self, kept: Pass) -> Iterator[tuple[str, float]]:
        """Names and values of the ordinary outputs of one pass."""
        for name, array in zip(self._net.outputs, kept, strict=True):
            if name not in self._judged:
                yield from ((name, value) for value in array.reshape(-1).tolist())

    def outputs(self, passes: Sequence[Pass]) -> list[Output]:
        """One output for every number of an ordinary blob, and for every blob of detections."""
        weights = dict(output_names(self._net))
        found: list[Output] = []
        self.precisions = []
        for name, arrays in zip(self._net.outputs, zip(*passes, strict=True), strict=True):
            if name in self._judged:
                self.precisions.append(Precisions(name, self._classes(arrays)))
                found.append(Output(name, self.precisions[-1].mean, 0.0))
                continue
            if len({array.shape for array in arrays}) > 1:
                raise SolverError(
                    f'output "{name}" has another shape in every pass, so it has no mean; end it '
                    "with a Silence layer"
                )
            columns = zip(*(array.reshape(-1).tolist() for array in arrays), strict=True)
            for column in columns:
                found.append(Output(name, sum(column) / len(passes), weights[name]))
        return found

    def _classes(self, arrays: Iterable[Any]) -> dict[int, float]:
        """Average precision of every class."""
        rows = np.concatenate([array.reshape(-1, RESULT) for array in arrays])
        counts, judged = rows[rows[:, 0] == -1], rows[rows[:, 0] != -1]
        judged = judged[(judged[:, 3] != 0) | (judged[:, 4] != 0)]
        found: dict[int, float] = {}
        for label in np.unique(counts[:, 1]).astype(int).tolist():
            objects = int(counts[counts[:, 1] == label, 2].sum())
            own = judged[judged[:, 1] == label]
            if not len(own):
                log.warning("Missing true_pos for label: %d", label)
            found[label] = average_precision(own[:, 2], own[:, 3], objects, self._version)
        return found

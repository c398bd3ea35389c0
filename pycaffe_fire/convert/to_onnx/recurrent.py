"""RNN and LSTM as a Scan over the time steps, since `cont` may begin sequences anywhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..dims import Dim, merged, number
from .graph import Graph, Tensor
from .registry import Part, converts

Step = Callable[[Graph, list[str], str, str], tuple[list[str], str]]


def _rows(graph: Graph, x: Tensor, axes: int) -> str:
    """x with all axes from `axes` on as one."""
    return graph.reshape(x.name, x.shape, (*x.shape[:axes], merged(x.shape[axes:])))


def _times(graph: Graph, part: Part, x: str, index: int) -> str:
    """x times the transpose of a weight blob."""
    name = f"{part.layer.name}.{index}.transposed"
    weights = graph.weight(name, np.ascontiguousarray(part.array(index).T))
    return graph.op("MatMul", x, weights)


def _scanned(graph: Graph, part: Part, states: int, recurrent: int, step: Step) -> list[str]:
    """The tops: what `step` gives for every time step, then the final states if exposed."""
    param = part.param.recurrent_param
    exposed, width = bool(param.expose_hidden), Dim(param.num_output)
    static = len(part.bottoms) > 2 + (states if exposed else 0)
    x, cont = part.bottoms[:2]
    sums = graph.op("Add", _times(graph, part, _rows(graph, x, 2), 0), part.weight(graph, 1))
    if static:
        sums = graph.op(
            "Add", sums, _times(graph, part, _rows(graph, part.bottoms[2], 1), 2)
        )  # fmt: skip
    steps = graph.reshape(cont.name, cont.shape, (*cont.shape, Dim(1)))
    state = (x.shape[1], width)
    if exposed:
        given = part.bottoms[3 if static else 2 :]
        first = [graph.reshape(blob.name, blob.shape, state) for blob in given]
    else:  # what the pass before left is not there; a sequence begins with zeros
        across = graph.op("Transpose", cont.name, perm=[1, 0])
        first = [graph.zeros(across, state)] * states
    finals, out = _scan(graph, part, first, [sums, steps], recurrent, step)
    tops = [out]
    if exposed:
        tops += [graph.reshape(f, state, (Dim(1), *state)) for f in finals]
    return tops


def _scan(
    graph: Graph, part: Part, first: list[str], over: list[str], recurrent: int, step: Step
) -> tuple[list[str], str]:
    body = Graph(graph.opset, outer=graph)
    states = [body.unique(f"{graph.scope}/state") for _ in first]
    sums, cont = (body.unique(f"{graph.scope}/{what}") for what in ("sums", "cont"))
    shut = body.op("Mul", cont, states[0])
    sums_now = body.op("Add", sums, _times(body, part, shut, recurrent))
    new, out = step(body, states, sums_now, cont)
    results = [*new, body.op("Identity", out)]
    info = graph.helper.make_tensor_value_info
    inner = graph.helper.make_graph(
        body.nodes, f"{graph.scope}/step",
        [info(name, 1, None) for name in (*states, sums, cont)],
        [info(name, 1, None) for name in results],
    )  # fmt: skip
    made = graph.ops("Scan", [*first, *over], len(results), body=inner, num_scan_inputs=2)
    return made[:-1], made[-1]


def _cell(body: Graph, gates: list[str], cell: str, cont: str) -> tuple[str, str]:
    """The new cell and output from inputs of the gates i, f, o, g."""
    i, f, o = (body.op("Sigmoid", gate) for gate in gates[:3])
    kept = body.op("Mul", body.op("Mul", f, cont), cell)
    new = body.op("Add", kept, body.op("Mul", i, body.op("Tanh", gates[3])))
    return new, body.op("Mul", o, body.op("Tanh", new))


def _lstm_step(width: int) -> Step:
    def step(body: Graph, states: list[str], sums: str, cont: str) -> tuple[list[str], str]:
        gates = body.ops("Split", [sums, body.integers([width] * 4)], 4, axis=1)
        new, out = _cell(body, gates, states[1], cont)
        return [out, new], out

    return step


@converts("LSTM")
def lstm(graph: Graph, part: Part) -> list[str]:
    step = _lstm_step(int(part.param.recurrent_param.num_output))
    return _scanned(graph, part, 2, len(part.blobs) - 1, step)


@converts("Lstm")
def lstm_of_rows(graph: Graph, part: Part) -> str:
    """Steps of streams from rows; with zeros for states a pass begins as where `cont` is 0."""
    param, x = part.param.lstm_param, part.x
    width, axis = Dim(param.num_output), len(part.tops[0]) - 1
    streams = x.shape[1] if axis == 2 else Dim(param.batch_size)
    steps = x.shape[0] if axis == 2 else Dim(x.shape[0] // streams, x.shape[0].symbol)
    gates = Dim(4 * width)
    sums = graph.op("Add", _times(graph, part, _rows(graph, x, axis), 0), part.weight(graph, 2))
    sums = graph.reshape(sums, (*x.shape[:axis], gates), (steps, streams, gates))
    if len(part.bottoms) > 1:
        clip = part.bottoms[1]
        cont = graph.reshape(clip.name, clip.shape, (steps, streams, Dim(1)))
        cont = graph.op("Sign", graph.op("Abs", cont))
    else:
        one = graph.constant(np.ones(1, np.float32))
        cont = graph.op("Add", graph.zeros(sums, (steps, streams, Dim(1))), one)
    across = graph.op("Transpose", sums, perm=[1, 0, 2]) if streams.varies else sums
    first = [graph.zeros(across, (streams, width))] * 2
    _, out = _scan(graph, part, first, [sums, cont], 1, _lstm_step(int(width)))
    return graph.reshape(out, (steps, streams, width), part.tops[0])


@converts("RNN")
def rnn(graph: Graph, part: Part) -> list[str]:
    def step(body: Graph, states: list[str], sums: str, cont: str) -> tuple[list[str], str]:
        hidden = body.op("Tanh", sums)
        return [hidden], hidden

    hidden, *finals = _scanned(graph, part, 1, len(part.blobs) - 3, step)
    product = _times(graph, part, hidden, len(part.blobs) - 2)
    out = graph.op("Add", product, part.weight(graph, len(part.blobs) - 1))
    return [graph.op("Tanh", out), *finals]


@converts("LSTMUnit")
def lstm_unit(graph: Graph, part: Part) -> list[str]:
    cell, sums, cont = part.bottoms
    width = number(cell.shape[2])
    gates = graph.ops("Split", [sums.name, graph.integers([width] * 4)], 4, axis=2)
    steps = graph.reshape(cont.name, cont.shape, (*cont.shape, Dim(1)))
    new, out = _cell(graph, gates, cell.name, steps)
    return [new, out]


@converts("ContinuationIndicator")
def continuation_indicator(graph: Graph, part: Part) -> str:
    """0 in the first moment, 1 after, for a batch that may vary."""
    times, batch = part.tops[0]
    starts = np.ones((number(times), 1), np.float32)
    starts[0] = 0
    if not batch.varies:
        return graph.constant(np.tile(starts, (1, int(batch))))
    return graph.op("Add", graph.zeros(part.x.name, (Dim(1), batch)), graph.constant(starts))

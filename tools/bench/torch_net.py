"""The other contender: the same net in PyTorch, for train.py, which starts this file.

It imports nothing of ours, so that its memory is PyTorch's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from timing import Contender, Stopwatch, forget_peak_memory, serve
from torch import Tensor


class TorchNet(Contender):
    """The commands that train.py gives."""

    def build(
        self,
        steps: list[dict[str, Any]],
        reference: dict[str, Any],
        threads: int,
        channels_last: bool,
        compiled: bool,
        sgd: dict[str, float],
    ) -> dict[str, Any]:
        """Set up the net from plain steps with our weights and inputs."""
        torch.set_num_threads(threads)
        self._format = torch.channels_last if channels_last else torch.contiguous_format
        self._load(steps, reference)
        self._plan = [(OPS[s["kind"]], s, self._weights(s), dead) for s, dead in _with_ends(steps)]
        self._dropout = False
        self._forward = torch.compile(self.forward) if compiled else self.forward
        # The fused update belongs to the best mode only; the default is what SGD(...) gives.
        self._sgd = torch.optim.SGD(
            self._groups(steps, sgd["base_lr"], sgd["weight_decay"]),
            momentum=sgd["momentum"],
            fused=channels_last or None,
        )
        loss, gradients = self._check()
        self._dropout = True  # compiled again, with it
        forget_peak_memory()
        return {"version": torch.__version__, "loss": loss, "gradients": gradients}

    def _load(self, steps: list[dict[str, Any]], reference: dict[str, Any]) -> None:
        flat = np.memmap(reference["file"], np.float32, "r")
        self._parameters: dict[int, Tensor] = {}
        for step in steps:
            for shape, start, rate, _ in step["weights"]:
                if start not in self._parameters:
                    values = flat[start : start + int(np.prod(shape))].reshape(shape)
                    tensor = self._laid_out(torch.from_numpy(values.copy()))
                    self._parameters[start] = tensor.requires_grad_(rate != 0)
        labels = {step["bottoms"][1] for step in steps if step["kind"] == "softmax_loss"}
        self._inputs = {}
        for name, path in reference["inputs"].items():
            values = torch.from_numpy(np.load(path))
            self._inputs[name] = values.long() if name in labels else self._laid_out(values)

    def _laid_out(self, tensor: Tensor) -> Tensor:
        return tensor.contiguous(memory_format=self._format) if tensor.dim() == 4 else tensor

    def _weights(self, step: dict[str, Any]) -> list[Tensor]:
        """A step's weights; one shared under another shape is a view."""
        found = ((self._parameters[start], shape) for shape, start, _, _ in step["weights"])
        return [w if list(w.shape) == shape else w.reshape(shape) for w, shape in found]

    def _groups(
        self, steps: list[dict[str, Any]], rate: float, decay: float
    ) -> list[dict[str, Any]]:
        """Caffe's multipliers as parameter groups."""
        groups: dict[tuple[float, float], dict[int, Tensor]] = {}
        for step in steps:
            for _, start, *multipliers in step["weights"]:
                if multipliers[0]:
                    group = groups.setdefault((multipliers[0], multipliers[1]), {})
                    group[start] = self._parameters[start]
        return [
            {"params": list(group.values()), "lr": rate * a, "weight_decay": decay * b}
            for (a, b), group in groups.items()
        ]

    def _check(self) -> tuple[float, dict[int, float]]:
        loss = self._forward()
        loss.backward()
        gradients = {
            start: float(weight.grad.norm())
            for start, weight in self._parameters.items()
            if weight.grad is not None
        }
        self._sgd.zero_grad()
        return loss.item(), gradients

    def forward(self) -> Tensor:
        blobs, loss = dict(self._inputs), torch.zeros(())
        for run, step, weights, dead in self._plan:
            inputs = [blobs[name] for name in step["bottoms"]]
            options = step["options"]
            if step["kind"] == "softmax_loss":
                loss = loss + run(inputs, weights, options)
            elif step["kind"] == "dropout":
                blobs[step["top"]] = F.dropout(inputs[0], options["ratio"], self._dropout)
            else:
                blobs[step["top"]] = run(inputs, weights, {**options, "in_place": step["in_place"]})
            del inputs
            for name in dead:
                blobs.pop(name, None)
        return loss

    def step(self, watch: Stopwatch) -> None:
        self._sgd.zero_grad()
        loss = self._forward()
        watch.lap("forward")
        loss.backward()
        watch.lap("backward")
        self._sgd.step()
        watch.lap("update")


def _with_ends(steps: list[dict[str, Any]]) -> list[tuple[dict[str, Any], list[str]]]:
    """Every step with the blobs that nobody reads after it, as a hand-written module drops them."""
    seen: set[str] = set()
    result = []
    for step in reversed(steps):
        used = {*step["bottoms"], step["top"]}
        result.append((step, sorted(used - seen)))
        seen |= used
    return result[::-1]


# One function per kind of step: (inputs, weights, options) to output.


def _bias(weights: Sequence[Tensor]) -> Tensor | None:
    return weights[1] if len(weights) > 1 else None


def _convolution(x: list[Tensor], w: list[Tensor], o: dict[str, Any]) -> Tensor:
    return F.conv2d(x[0], w[0], _bias(w), o["stride"], o["padding"], o["dilation"], o["groups"])


def _deconvolution(x: list[Tensor], w: list[Tensor], o: dict[str, Any]) -> Tensor:
    return F.conv_transpose2d(
        x[0], w[0], _bias(w), o["stride"], o["padding"], 0, o["groups"], o["dilation"]
    )


def _inner_product(x: list[Tensor], w: list[Tensor], o: dict[str, Any]) -> Tensor:
    weight = w[0].t() if o["transpose"] else w[0]
    return F.linear(x[0].flatten(o["axis"]), weight, _bias(w))


def _max_pool(x: list[Tensor], w: list[Tensor], o: dict[str, Any]) -> Tensor:
    return F.max_pool2d(x[0], o["kernel_size"], o["stride"], o["padding"], ceil_mode=o["ceil_mode"])


def _average_pool(x: list[Tensor], w: list[Tensor], o: dict[str, Any]) -> Tensor:
    return F.avg_pool2d(x[0], o["kernel_size"], o["stride"], o["padding"], ceil_mode=o["ceil_mode"])


def _global_max_pool(x: list[Tensor], w: list[Tensor], o: dict[str, Any]) -> Tensor:
    return F.adaptive_max_pool2d(x[0], 1)


def _global_average_pool(x: list[Tensor], w: list[Tensor], o: dict[str, Any]) -> Tensor:
    return F.adaptive_avg_pool2d(x[0], 1)


def _relu(x: list[Tensor], w: list[Tensor], o: dict[str, Any]) -> Tensor:
    if o["slope"]:
        return F.leaky_relu(x[0], o["slope"], o["in_place"])
    return F.relu(x[0], o["in_place"])


def _lrn_across(x: list[Tensor], w: list[Tensor], o: dict[str, Any]) -> Tensor:
    return F.local_response_norm(x[0], o["size"], o["alpha"], o["beta"], o["k"])


def _lrn_within(x: list[Tensor], w: list[Tensor], o: dict[str, Any]) -> Tensor:
    mean = F.avg_pool2d(x[0] * x[0], o["size"], 1, o["size"] // 2)
    return x[0] / torch.pow(1 + o["alpha"] * mean, o["beta"])


def _concat(x: list[Tensor], w: list[Tensor], o: dict[str, Any]) -> Tensor:
    return torch.cat(x, o["axis"])


def _batch_norm(x: list[Tensor], w: list[Tensor], o: dict[str, Any]) -> Tensor:
    scale = w[0] if w else None
    return F.batch_norm(x[0], None, None, scale, _bias(w), training=True, eps=o["eps"])


def _scale(x: list[Tensor], w: list[Tensor], o: dict[str, Any]) -> Tensor:
    trailing = x[0].dim() - o["axis"] % x[0].dim() - w[0].dim()
    scale, *bias = (each.reshape(*each.shape, *[1] * trailing) for each in w)
    return torch.addcmul(bias[0], x[0], scale) if bias else x[0] * scale


def _eltwise(x: list[Tensor], w: list[Tensor], o: dict[str, Any]) -> Tensor:
    scaled = x
    if o["coefficients"]:
        scaled = [c * each for c, each in zip(o["coefficients"], x, strict=True)]
    combines: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "sum": torch.add, "prod": torch.mul, "max": torch.maximum,
    }  # fmt: skip
    combine = combines[o["operation"]]
    result = scaled[0]
    for each in scaled[1:]:
        result = combine(result, each)
    return result


def _softmax_loss(x: list[Tensor], w: list[Tensor], o: dict[str, Any]) -> Tensor:
    scores = x[0].movedim(o["axis"], 1)
    labels = x[1].reshape(scores.shape[0], *scores.shape[2:])
    ignore = -100 if o["ignore"] is None else o["ignore"]
    total = F.cross_entropy(scores, labels, ignore_index=ignore, reduction="sum")
    divisor = {
        "FULL": labels.numel(),
        "VALID": labels.numel() if o["ignore"] is None else int((labels != ignore).sum()),
        "BATCH_SIZE": scores.shape[0],
        "NONE": 1,
    }[o["normalization"]]
    return torch.mul(total, o["weight"] / max(1, divisor))


OPS: dict[str, Callable[[list[Tensor], list[Tensor], dict[str, Any]], Tensor]] = {
    "convolution": _convolution,
    "deconvolution": _deconvolution,
    "inner_product": _inner_product,
    "max_pool": _max_pool,
    "average_pool": _average_pool,
    "global_max_pool": _global_max_pool,
    "global_average_pool": _global_average_pool,
    "relu": _relu,
    "lrn_across": _lrn_across,
    "lrn_within": _lrn_within,
    "dropout": lambda x, w, o: x[0],
    "concat": _concat,
    "batch_norm": _batch_norm,
    "scale": _scale,
    "eltwise": _eltwise,
    "softmax_loss": _softmax_loss,
}


if __name__ == "__main__":
    net = TorchNet()
    serve(
        {"build": net.build, "warm": net.warm, "sample": net.sample, "memory": net.memory},
        RuntimeError,
    )

"""Weights under the names other frameworks use, in .safetensors, .npz and .pt files."""

from __future__ import annotations

_STATISTICS = ("running_mean", "running_var")
_NUMBERED = ("LSTM", "RNN")  # their blobs are numbered


def blob_name(kind: str, index: int, count: int) -> str:
    """What a layer's weight blob is called after the layer's name."""
    if kind == "BatchNorm":
        return (*_STATISTICS, "factor", "weight", "bias")[index]
    if kind in _NUMBERED or count > 4:
        return f"blobs.{index}"
    if kind == "Bias" or (kind == "Scale" and count == 1 and index == 1):
        return "bias"
    return ("weight", "bias", *_STATISTICS)[index]

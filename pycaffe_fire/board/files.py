"""The files of a run that may be looked at: its log and its snapshots, by name and nothing else."""

from __future__ import annotations

import os
import re
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from .. import schema
from ..convert import convert
from ..errors import FireError
from ..solver.snapshot_files import snapshot_paths
from .deploy import deploy_net, without_splits

LABEL_NAMES = ("labels.txt", "synset_words.txt", "classes.txt", "label_names.txt")
MOST_LABELS = 100_000
_ITERATION = re.compile(r"_iter_(\d+)\.(caffemodel|solverstate)")


@dataclass(frozen=True)
class RunFile:
    """One file of a run."""

    name: str
    path: str
    size: int
    written: float


def run_files(log: str, root: str) -> dict[str, RunFile]:
    """By name; links and what they lead to are not files of a run."""
    prefix = log.removesuffix("_log.jsonl")
    found = {}
    for path in [log, *sorted(snapshot_paths(prefix))]:
        inside = os.path.realpath(path).startswith(os.path.join(root, ""))
        if os.path.islink(path) or not inside or not os.path.isfile(path):
            continue
        stat = os.stat(path)
        name = os.path.basename(path)
        found[name] = RunFile(name, path, stat.st_size, stat.st_mtime)
    return found


def snapshots(files: dict[str, RunFile]) -> list[RunFile]:
    """Files with weights, the newest first."""
    models = [file for file in files.values() if ".caffemodel" in file.name]
    return sorted(models, key=lambda file: (file.written, iteration_of(file.name)), reverse=True)


def iteration_of(name: str) -> int:
    match = _ITERATION.search(name)
    return int(match.group(1)) if match else -1


def nets_of(started: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The nets of a run as its log describes them: train, test, test1, ..."""
    nets = {"train": started.get("train")}
    nets |= {f"test{i or ''}": net for i, net in enumerate(started.get("tests") or [])}
    return {name: net for name, net in nets.items() if net}


def test_net(started: dict[str, Any]) -> dict[str, Any]:
    """The net to judge weights by: the first test net, else the training net."""
    nets = nets_of(started)
    net = nets.get("test") or nets.get("train")
    if net is None:
        raise FireError("the run's log does not describe its net")
    return net


def parsed(net: dict[str, Any]) -> Any:
    """The prototxt in a log as a message."""
    return schema.parse_text(str(net["prototxt"]), schema.NetParameter())


def image_shape(net: dict[str, Any]) -> list[int]:
    """Channels, height and width of what the net's first data layer gives."""
    tops: list[list[int]] = next((layer["tops"] for layer in net["layers"] if layer["tops"]), [])
    if not tops or len(tops[0]) != 4:
        raise FireError(f"the net reads no images, but blobs of shape {tops[:1]}")
    return [int(size) for size in tops[0][1:]]


def data_layers(net: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(entry) for entry in net.get("data", [])]


def labels_of(log: str, started: dict[str, Any]) -> list[str]:
    """Names of classes from a list beside the run or its data, line by line; none is fine."""
    folders = [os.path.dirname(log)]
    for net in nets_of(started).values():
        for entry in data_layers(net):
            source = os.path.join(str(started.get("folder", "")), str(entry.get("source", "")))
            folders.append(os.path.dirname(source))
    for folder in dict.fromkeys(folders):
        for name in LABEL_NAMES:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, encoding="utf-8", errors="replace") as file:
                    return [line.strip()[:200] for line in file.read(1 << 24).splitlines()][
                        :MOST_LABELS
                    ]
    return []


def mean_of(net: Any, folder: str) -> Any:
    """The mean that a net's data layer subtracts, as an array, if it is a file that can be read."""
    for layer in net.layer:
        if layer.transform_param.mean_file:
            try:
                return schema.read_blob(os.path.join(folder, layer.transform_param.mean_file))
            except FireError:
                return None
    return None


def archive(model: RunFile, log: str, started: dict[str, Any]) -> IO[bytes]:
    """A zip with all that somebody needs to use the weights elsewhere."""
    net = parsed(test_net(started))
    out = tempfile.SpooledTemporaryFile(max_size=1 << 26)  # noqa: SIM115
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as made:
        made.write(model.path, model.name)
        for name, content in _texts(net, log, started):
            made.writestr(name, content)
        mean = mean_of(net, str(started.get("folder", "")))
        if mean is not None:
            made.writestr("mean.binaryproto", _mean_bytes(mean))
    out.seek(0)
    return out


def _texts(net: Any, log: str, started: dict[str, Any]) -> Iterator[tuple[str, str]]:
    train = nets_of(started).get("train")
    if train:
        yield "train.prototxt", schema.to_text(without_splits(parsed(train)))
    try:
        yield "deploy.prototxt", deploy_text(net, started)
    except FireError:  # a net that reads no images has no such form
        yield "test.prototxt", schema.to_text(without_splits(net))
    labels = labels_of(log, started)
    if labels:
        yield "labels.txt", "\n".join(labels) + "\n"


def deploy_text(net: Any, started: dict[str, Any]) -> str:
    return schema.to_text(deploy_net(net, image_shape(test_net(started))).net)


def _mean_bytes(mean: Any) -> bytes:
    values = np.asarray(mean, np.float32)
    _, channels, height, width = (1, *values.shape)[-4:]
    blob = schema.BlobProto(num=1, channels=channels, height=height, width=width)
    blob.data.extend(values.reshape(-1).tolist())
    content: bytes = blob.SerializeToString()
    return content


def onnx_bytes(model: RunFile, started: dict[str, Any]) -> bytes:
    """The weights and their net as ONNX, compared with ours by ONNX Runtime; needs the extra
    `convert`."""
    with tempfile.TemporaryDirectory() as folder:
        net, out = os.path.join(folder, "deploy.prototxt"), os.path.join(folder, "model.onnx")
        with open(net, "w", encoding="utf-8") as file:
            file.write(deploy_text(parsed(test_net(started)), started))
        convert(net, model.path, out)
        with open(out, "rb") as made:
            return made.read()

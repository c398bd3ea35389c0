"""The kinds of files that people hand over: seeds to mutate, and what a user does with each.

`load` may raise FireError; anything else is a finding. A database is a folder, of which one file
is mutated.
"""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import logging
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

GOLDEN = Path(__file__).parents[1] / "golden"
MODELS = Path(__file__).parents[2] / "models"
SMALL = 200_000  # elements: nets up to here run, larger ones are only built


class Kind(NamedTuple):
    """`seeds(folder)` gives the inputs by name, and may prepare files in the folder."""

    seeds: Callable[[Path], dict[str, bytes]]
    load: Callable[[Path], object]
    text: bool = False
    needs_memory: bool = False  # nets may ask for as much as they like; that is said, too
    place: str = ""  # where in the folder the mutated file belongs, if not beside it


# Nets and solvers.


def _net_seeds(folder: Path) -> dict[str, bytes]:
    found = {}
    for path in sorted((GOLDEN / "layers").glob("*.npz")):
        with np.load(path) as case:
            found[path.stem] = str(case["prototxt"]).encode()
    for path in sorted((GOLDEN / "upgrade").glob("*.prototxt")):
        found[path.stem] = path.read_bytes()
    found["lenet"] = (MODELS / "lenet" / "deploy.prototxt").read_bytes()
    extra = {
        "lrn": 'type: "LRN" lrn_param { local_size: 5 }',
        "prior": 'type: "PriorBox" bottom: "d" prior_box_param { min_size: 4 max_size: 9 '
        "aspect_ratio: 2 flip: true variance: 0.1 }",
        "hinge": 'type: "HingeLoss" bottom: "l"',
        "moments": 'type: "MVN"',
        "spp": 'type: "SPP" spp_param { pyramid_height: 2 }',
        "interp": 'type: "Interp" interp_param { height: 9 width: 9 }',
        "reorg": 'type: "Reorg" reorg_param { stride: 2 }',
        "permute": 'type: "Permute" permute_param { order: 0 order: 2 order: 3 order: 1 }',
        "softmax": 'type: "Softmax"',
        "tile": 'type: "Tile" tile_param { axis: 1 tiles: 3 }',
        "norm": 'type: "Normalize"',
        "stochastic": 'type: "Pooling" pooling_param { pool: STOCHASTIC kernel_size: 2 stride: 2 }',
    }
    for name, layer in extra.items():
        found[f"extra_{name}"] = (
            'layer { name: "d" type: "Input" top: "d" top: "l" input_param { '
            "shape { dim: 2 dim: 4 dim: 6 dim: 6 } shape { dim: 2 } } }\n"
            f'layer {{ name: "x" bottom: "d" top: "x" {layer} }}\n'
        ).encode()
    return found


def _load_net(path: Path) -> None:
    import pycaffe_fire as caffe

    net = caffe.Net(str(path), caffe.TRAIN)
    _run(net)


def _run(net: Any) -> None:
    size = sum(blob.count for blob in net.blobs.values())
    if size <= SMALL and len(net.layers) < 100:
        net.forward()
        net.backward()


_SOLVED = """name: "s" layer { name: "data" type: "DummyData" top: "data" top: "label"
  dummy_data_param { shape { dim: 4 dim: 3 } shape { dim: 4 } data_filler { type: "gaussian" } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param {
  num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


def _solver_seeds(folder: Path) -> dict[str, bytes]:
    (folder / "net.prototxt").write_text(_SOLVED)
    head = f'net: "{folder}/net.prototxt" snapshot_prefix: "{folder}/s" solver_mode: CPU '
    common = "base_lr: 0.01 max_iter: 4 display: 0 random_seed: 1 snapshot_after_train: false "
    rates = {
        "fixed": 'lr_policy: "fixed"', "step": 'lr_policy: "step" gamma: 0.1 stepsize: 2',
        "inv": 'lr_policy: "inv" gamma: 0.1 power: 0.75', "exp": 'lr_policy: "exp" gamma: 0.9',
        "poly": 'lr_policy: "poly" power: 1', "sigmoid": 'lr_policy: "sigmoid" gamma: 0.1 '
        "stepsize: 3", "multistep": 'lr_policy: "multistep" gamma: 0.1 stepvalue: 1 stepvalue: 3',
    }  # fmt: skip
    rules = {
        "sgd": 'type: "SGD" momentum: 0.9 weight_decay: 0.001', "adam": 'type: "Adam" '
        "momentum: 0.9 momentum2: 0.999 delta: 1e-8", "rmsprop": 'type: "RMSProp" rms_decay: 0.9',
        "adadelta": 'type: "AdaDelta" momentum: 0.9 delta: 1e-6', "adagrad": 'type: "AdaGrad"',
        "nesterov": 'type: "Nesterov" momentum: 0.9 clip_gradients: 1 iter_size: 2',
    }  # fmt: skip
    return {
        f"{rule}_{rate}": f"{head}{common}{rates[rate]} {rules[rule]}\n".encode()
        for rule in rules
        for rate in rates
    }


def _load_solver(path: Path) -> None:
    import pycaffe_fire as caffe

    solver = caffe.get_solver(str(path))
    solver.step(2)


# Weights, states, means.


def _file_seeds(*patterns: str) -> Callable[[Path], dict[str, bytes]]:
    def seeds(folder: Path) -> dict[str, bytes]:
        files = [path for pattern in patterns for path in sorted(GOLDEN.glob(pattern))]
        return {f"{i}_{path.name}": path.read_bytes()[:400_000] for i, path in enumerate(files)}

    return seeds


def _weights_seeds(folder: Path) -> dict[str, bytes]:
    """Of every age: V0 and V1 made from the newest form."""
    found = _file_seeds("schema/*.caffemodel")(folder)
    blob = b"\x08\x01\x10\x01\x18\x02\x20\x02\x2a\x10" + struct.pack("<4f", 1, 2, 3, 4)
    v1 = b"\x22\x02ip" + b"\x28\x0e" + b"\x32" + bytes([len(blob)]) + blob
    v0_layer = b"\x0a\x02ip\x12\x0dinner_product" + b"\x92\x03" + bytes([len(blob)]) + blob
    v0 = b"\x0a" + bytes([len(v0_layer)]) + v0_layer
    for name, layer in (("v1", v1), ("v0", v0)):
        found[name] = b"\x0a\x01n\x12" + bytes([len(layer)]) + layer
    return found


def _load_weights(path: Path) -> None:
    from pycaffe_fire import schema

    schema.read_weights(path)


def _load_state(path: Path) -> None:
    from pycaffe_fire import schema

    schema.read_state(path)


def _load_hdf5_weights(path: Path) -> None:
    from pycaffe_fire import schema
    from pycaffe_fire.errors import FireError

    try:
        schema.read_weights(path)
    except FireError:
        schema.read_state(path)


def _load_mean(path: Path) -> None:
    from pycaffe_fire import schema

    schema.read_blob(path)


def _hdf5_data_seeds(folder: Path) -> dict[str, bytes]:
    import h5py

    found = {}
    for name, options in (
        ("plain", {}),
        ("zipped", {"chunks": (4, 3), "compression": "gzip"}),
        ("shuffled", {"chunks": (4, 3), "shuffle": True, "fletcher32": True}),
    ):
        with h5py.File(folder / "made.h5", "w") as file:
            file.create_dataset("data", data=np.arange(36, dtype="f4").reshape(12, 3), **options)
            file["label"] = np.arange(12, dtype="f8")
        found[name] = (folder / "made.h5").read_bytes()
    return found


def _load_hdf5_data(path: Path) -> None:
    from pycaffe_fire.data.hdf5 import HDF5Source

    (path.parent / "list.txt").write_text(f"{path}\n")
    for shuffle in (None, 5):
        source = HDF5Source(path.parent / "list.txt", ["data", "label"], shuffle)
        shapes = [(6, *shape) for shape in source.shapes]
        if sum(int(np.prod(shape)) for shape in shapes) <= SMALL:
            source.fill(range(3, 9), *(np.empty(shape, np.float32) for shape in shapes))


# Records and databases.


def _datum_seeds(folder: Path) -> dict[str, bytes]:
    from pycaffe_fire.data.datum import encode_datum, image_datum

    pixels = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    found = {"plain": encode_datum(pixels, 3), "floats": encode_datum(pixels.astype("f4"), -1)}
    for path in sorted((GOLDEN / "data" / "images").iterdir())[:3]:
        found[path.name] = image_datum(path.read_bytes(), 7)
    return found


def _load_datum(path: Path) -> None:
    from pycaffe_fire.data.datum import datum_image, parse_datum

    data = path.read_bytes()
    datum_image(parse_datum(data, "record"), "record")


def _record_seeds(folder: Path) -> dict[str, bytes]:
    from PIL import Image

    from pycaffe_fire.data.datum import image_datum

    found = _datum_seeds(folder)
    pixels = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype=np.uint8)
    jpegs: dict[str, dict[str, Any]] = {
        "usual": {}, "progressive": {"progressive": True}, "comment": {"comment": b"\xff\xc0"},
        "restarted": {"restart_marker_blocks": 1},
    }  # fmt: skip
    for name, options in jpegs.items():
        out = io.BytesIO()
        Image.fromarray(pixels).save(out, "JPEG", **options)
        found[f"jpeg_{name}"] = image_datum(out.getvalue(), 5)
    return found


def _load_records(path: Path) -> None:
    """Read a batch with the record twice, as a loader does, and transform and resize its image."""
    from pycaffe_fire import schema
    from pycaffe_fire.backend.cpu import library
    from pycaffe_fire.data.datum import datum_image, parse_datum
    from pycaffe_fire.data.record_batch import RecordBatch
    from pycaffe_fire.data.resize import CUBIC, LANCZOS, LINEAR, resize
    from pycaffe_fire.data.transformer import Transformer

    data = path.read_bytes()
    image: Any = None
    if library.available() and data:
        batch = RecordBatch([data, data])
        image = batch.image(1, int(batch.heights[1]))
    datum = parse_datum(data, "record")
    whole = datum_image(datum, "record")
    if image is not None and not (np.array_equal(image, whole) and datum.label == batch.labels[1]):
        raise AssertionError("the reader of batches finds another image than the general one")
    if whole.size > SMALL:
        return
    shape = whole.shape
    crop = schema.TransformationParameter(
        crop_h=-(-shape[1] // 2), crop_w=-(-shape[2] // 2), mirror=True, mean_value=[3], scale=0.5
    )
    for param in (crop, schema.TransformationParameter()):
        transformer = Transformer(param, True, 1)
        out = np.empty((2, *transformer.output_shape(shape, "record")), np.float32)
        transformer([whole, whole], range(2), out)
        if library.available() and batch.has_pixels_of_one_shape:
            again = np.empty_like(out)
            transformer.transform_pixels(batch.addresses, shape, range(2), again)
            if out.tobytes() != again.tobytes():
                raise AssertionError("a batch of pixels is transformed to other values")
    for method in (LINEAR, CUBIC, LANCZOS) if whole.dtype == np.uint8 else ():
        resize(whole, 5, 11, method)


def _transform_seeds(folder: Path) -> dict[str, bytes]:
    (folder / "list").write_bytes(_list_seeds(folder)["list"])
    seeds = {
        "crop": "crop_size: 5 mirror: true scale: 0.01 mean_value: 104 mean_value: 1 mean_value: 0",
        "sides": "crop_h: 5 crop_w: 7 mean_value: 3 force_gray: true random_seed: 3",
        "resize": "resize_param { height: 9 width: 7 interp_mode: CUBIC interp_mode: LANCZOS4 }",
        "fit": "resize_param { resize_mode: FIT_LARGE_SIZE_AND_PAD height: 9 width: 9 pad_value: 2 "
        "pad_mode: MIRRORED interp_mode: AREA } crop_size: 4",
        "expand": "expand_param { prob: 1 max_expand_ratio: 2 } crop_size: 3",
        "ranges": "img_rand_resize_lower: 9 img_rand_resize_upper: 12 crop_size: 6 "
        "interpolation_algo_up: INTER_LINEAR allow_upscale: true",
        "distort": "distort_param { brightness_prob: 1 brightness_delta: 9 hue_prob: 1 "
        "hue_delta: 3 contrast_prob: 1 contrast_lower: 0.5 contrast_upper: 1.5 }",
        "noise": "noise_param { prob: 1 gauss_blur: true jpeg: 50 saltpepper: true "
        "saltpepper_param { fraction: 0.1 value: 3 } }",
    }
    return {name: text.encode() for name, text in seeds.items()}


def _load_transform(path: Path) -> None:
    from pycaffe_fire import schema
    from pycaffe_fire.data.image_list import ImageListSource, size_rule
    from pycaffe_fire.data.order import SequentialOrder
    from pycaffe_fire.data.transformer import Transformer
    from pycaffe_fire.schema.proto import TransformationParameter

    param: TransformationParameter = schema.TransformationParameter()
    schema.parse_text(path.read_text("utf-8", "replace"), param)
    source = ImageListSource(
        f"{path.parent}/list", f"{path.parent}/", True, size_rule(8, 8),
        Transformer(param, True, 1), SequentialOrder(),
    )  # fmt: skip
    if np.prod(source.shape) < SMALL:
        source.fill(range(4), np.empty((4, *source.shape), np.float32))


def _database_seeds(kind: str) -> Callable[[Path], dict[str, bytes]]:
    def seeds(folder: Path) -> dict[str, bytes]:
        shutil.copytree(GOLDEN / "data" / f"raw_{kind.lower()}", folder / "db", dirs_exist_ok=True)
        files = [p for p in sorted((folder / "db").iterdir()) if p.suffix in (".mdb", ".ldb")]
        found = {path.name: path.read_bytes() for path in files if "lock" not in path.name}
        if kind == "LEVELDB":
            found |= {p.name: p.read_bytes() for p in sorted((folder / "db").glob("MANIFEST*"))}
        return found

    return seeds


def _load_database(kind: str) -> Callable[[Path], None]:
    def load(path: Path) -> None:
        from pycaffe_fire import schema
        from pycaffe_fire.data.order import SequentialOrder
        from pycaffe_fire.data.source import DatabaseSource
        from pycaffe_fire.data.transformer import Transformer

        transformer = Transformer(schema.TransformationParameter(), False, 0)
        folder = path.parent
        source = DatabaseSource(folder, kind, transformer, SequentialOrder(), policy="skip")
        if np.prod(source.shape) < SMALL:
            data = np.empty((8, *source.shape), np.float32)
            for start in (0, 8):
                source.fill(range(start, start + 8), data)

    return load


# Images and lists.


def _image_seeds(folder: Path) -> dict[str, bytes]:
    from PIL import Image

    found = {p.name: p.read_bytes() for p in sorted((GOLDEN / "data" / "images").iterdir())[:4]}
    pixels = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    for kind in (
        "BMP",
        "GIF",
        "TIFF",
        "WEBP",
        "PPM",
        "TGA",
        "ICO",
        "DDS",
        "PCX",
        "SGI",
        "JPEG2000",
    ):
        out = io.BytesIO()
        try:
            image.save(out, kind)
        except (OSError, KeyError, ValueError):  # this Pillow does not write it
            continue
        found[kind.lower()] = out.getvalue()
    return found


def _load_image(path: Path) -> None:
    from pycaffe_fire.data.image import decode_image, read_image
    from pycaffe_fire.errors import DataError

    for color in (True, False):
        try:
            read_image(str(path), color)
        except DataError:
            decode_image(path.read_bytes(), "record")


def _list_seeds(folder: Path) -> dict[str, bytes]:
    shutil.copytree(GOLDEN / "data" / "images", folder / "images", dirs_exist_ok=True)
    names = sorted(path.name for path in (folder / "images").iterdir())[:6]
    return {"list": "".join(f"images/{n} {i}\n" for i, n in enumerate(names)).encode()}


def _load_list(path: Path) -> None:
    from pycaffe_fire import schema
    from pycaffe_fire.data.image_list import ImageListSource, size_rule
    from pycaffe_fire.data.order import SequentialOrder
    from pycaffe_fire.data.transformer import Transformer

    transformer = Transformer(schema.TransformationParameter(), False, 0)
    source = ImageListSource(
        str(path), f"{path.parent}/", True, size_rule(8, 8), transformer, SequentialOrder()
    )
    source.fill(range(4), np.empty((4, *source.shape), np.float32))


def _window_seeds(folder: Path) -> dict[str, bytes]:
    _list_seeds(folder)
    name = sorted((folder / "images").iterdir())[0]
    lines = ["# 0", str(name), "3", "20", "20", "3", "1 0.9 1 1 9 9", "2 0.7 0 0 5 5"]
    return {"windows": "\n".join([*lines, "0 0.1 3 3 8 8", ""]).encode()}


def _load_windows(path: Path) -> None:
    from pycaffe_fire import schema
    from pycaffe_fire.data.windows import WindowSource

    param = schema.WindowDataParameter(
        source=str(path), batch_size=4, fg_fraction=0.5, crop_mode="warp", context_pad=1
    )
    source = WindowSource(param, schema.TransformationParameter(crop_size=6), 1, 4)
    source.fill(range(4), np.empty((4, *source.shapes[0]), np.float32))


def _mnist_seeds(folder: Path) -> dict[str, bytes]:
    labels = b"\0\0\x08\x01" + struct.pack(">I", 5) + bytes(5)
    (folder / "labels").write_bytes(labels)
    images = b"\0\0\x08\x03" + struct.pack(">III", 5, 4, 3) + bytes(range(60))
    return {"plain": images, "gzip": gzip.compress(images, mtime=0)}


def _load_mnist(path: Path) -> None:
    from pycaffe_fire.data.convert import convert_mnist

    out = path.parent / "made_lmdb"
    shutil.rmtree(out, ignore_errors=True)
    convert_mnist(str(path), str(path.parent / "labels"), str(out), "lmdb")


def _cifar_seeds(folder: Path) -> dict[str, bytes]:
    batch = bytes([3]) + bytes(3072)
    for i in range(1, 6):
        (folder / f"data_batch_{i}.bin").write_bytes(batch)
    return {"batch": batch * 2}


def _load_cifar(path: Path) -> None:
    from pycaffe_fire.data.convert import convert_cifar

    for name in ("train", "test"):
        shutil.rmtree(path.parent / f"cifar10_{name}_lmdb", ignore_errors=True)
    convert_cifar(str(path.parent), str(path.parent), "lmdb")


# Logs.


def _jsonl_seeds(folder: Path) -> dict[str, bytes]:
    net = {
        "name": "n", "prototxt": "layer {}", "layers": [{"name": "a", "type": "ReLU",
        "tops": [[1, 2]], "parameters": 3, "memory": 4, "multiply_adds": 5}],
        "data": [{"layer": "d", "source": "x", "records": 10, "batch": 2, "transform": "crop"}],
    }  # fmt: skip
    events: list[dict[str, Any]] = [
        {"event": "started", "time": 1.0, "name": "n", "iteration": 0, "solver": {"test_iter": [3],
         "base_lr": 0.1}, "batch": 2, "leaves": 1, "ranks": 1, "communicator": "", "backend": "b",
         "seed": 1, "train": net, "tests": [net], "hardware": {"host": "h", "system": "s",
         "processor": "p", "cores": 2, "memory_bytes": 9}, "versions": {"python": "3"}},
        {"event": "trained", "time": 2.0, "iteration": 1, "loss": 0.5, "rate": 0.1,
         "images_per_second": 3.0, "outputs": {"loss": 0.5, "x": 1.0}},
        {"event": "tested", "time": 3.0, "iteration": 1, "net": 0, "loss": None,
         "outputs": {"accuracy": 0.5}},
        {"event": "profiled", "time": 3.0, "iteration": 1, "layers": [{"name": "a", "forward": 0.1,
         "backward": 0.2, "inside": ""}]},
        {"event": "notfinite", "time": 3.5, "iteration": 1, "what": "loss", "done": "skipped"},
        {"event": "finished", "time": 4.0, "iteration": 2, "early": False},
    ]  # fmt: skip
    return {"run": "".join(json.dumps(event) + "\n" for event in events).encode()}


def _load_jsonl(path: Path) -> None:
    from pycaffe_fire.report.page import page
    from pycaffe_fire.report.runs import read_run

    for by in ("iteration", "time"):
        page([read_run(str(path))], by, 2)


def _load_log(path: Path) -> None:
    from pycaffe_fire.report.page import page
    from pycaffe_fire.report.parse_log import parse_log
    from pycaffe_fire.report.runs import read_run

    parse_log(str(path))
    page([read_run(str(path))])


# Models of other frameworks.

_CONVERTED = {
    "classifier": """
layer { name: "c" type: "Convolution" bottom: "data" top: "c"
  convolution_param { num_output: 6 kernel_size: 3 pad: 1 group: 2 } }
layer { name: "b" type: "BatchNorm" bottom: "c" top: "b" }
layer { name: "s" type: "Scale" bottom: "b" top: "b" scale_param { bias_term: true } }
layer { name: "r" type: "ReLU" bottom: "b" top: "b" }
layer { name: "p" type: "Pooling" bottom: "b" top: "p"
  pooling_param { kernel_size: 3 stride: 2 } }
layer { name: "i" type: "InnerProduct" bottom: "p" top: "i"
  inner_product_param { num_output: 3 } }
layer { name: "m" type: "Softmax" bottom: "i" top: "prob" }""",
    "branches": """
layer { name: "u" type: "Deconvolution" bottom: "data" top: "u"
  convolution_param { num_output: 4 kernel_size: 4 stride: 2 pad: 1 group: 4 } }
layer { name: "l" type: "LRN" bottom: "u" top: "l" }
layer { name: "e" type: "Eltwise" bottom: "u" bottom: "l" top: "e" }
layer { name: "k" type: "Concat" bottom: "e" bottom: "l" top: "k" }
layer { name: "x" type: "Slice" bottom: "k" top: "x" top: "y" slice_param { slice_point: 3 } }
layer { name: "q" type: "PReLU" bottom: "x" top: "q" }
layer { name: "f" type: "Flatten" bottom: "y" top: "f" }
layer { name: "t" type: "Permute" bottom: "q" top: "t"
  permute_param { order: 0 order: 2 order: 3 order: 1 } }""",
}


def _onnx_seeds(folder: Path) -> dict[str, bytes]:
    import pycaffe_fire as caffe
    from pycaffe_fire.convert import Settings, convert

    found, data = {}, "shape { dim: 1 dim: 4 dim: 6 dim: 6 }"
    for name, layers in _CONVERTED.items():
        net, weights, made = (folder / f"{name}{end}" for end in (".prototxt", ".caffemodel", ""))
        net.write_text(
            f'layer {{ name: "data" type: "Input" top: "data" input_param {{ {data} }} }}{layers}'
        )
        caffe.Net(str(net), caffe.TEST).save(str(weights))
        convert(net, weights, made.with_suffix(".onnx"), settings=Settings(check_with=()))
        found[name] = made.with_suffix(".onnx").read_bytes()
    return found


def _load_onnx(path: Path) -> None:
    from pycaffe_fire.convert import Settings, convert

    out = path.with_name("out.prototxt"), path.with_name("out.caffemodel")
    convert(path, *out, settings=Settings(check_with=()))


def load_quietly() -> None:
    """Nobody reads what the loaders log."""
    logging.getLogger("pycaffe_fire").setLevel(logging.CRITICAL)
    os.environ.setdefault("OMP_NUM_THREADS", "1")


KINDS: dict[str, Kind] = {
    "prototxt": Kind(_net_seeds, _load_net, text=True, needs_memory=True),
    "solver": Kind(_solver_seeds, _load_solver, text=True, needs_memory=True),
    "caffemodel": Kind(_weights_seeds, _load_weights),
    "solverstate": Kind(_file_seeds("schema/*.solverstate"), _load_state),
    "hdf5_weights": Kind(_file_seeds("schema/*.h5"), _load_hdf5_weights),
    "mean": Kind(_file_seeds("schema/*.binaryproto"), _load_mean),
    "hdf5_data": Kind(_hdf5_data_seeds, _load_hdf5_data),
    "datum": Kind(_datum_seeds, _load_datum),
    "records": Kind(_record_seeds, _load_records),
    "transform": Kind(_transform_seeds, _load_transform, text=True),
    "lmdb": Kind(_database_seeds("LMDB"), _load_database("LMDB"), place="db"),
    "image": Kind(_image_seeds, _load_image),
    "list": Kind(_list_seeds, _load_list, text=True),
    "windows": Kind(_window_seeds, _load_windows, text=True),
    "mnist": Kind(_mnist_seeds, _load_mnist),
    "cifar": Kind(_cifar_seeds, _load_cifar, place="test_batch.bin"),
    "jsonl": Kind(_jsonl_seeds, _load_jsonl, text=True),
    "log": Kind(_file_seeds("logs/caffe_train.log"), _load_log, text=True),
}
if importlib.util.find_spec("onnx"):
    KINDS["onnx"] = Kind(_onnx_seeds, _load_onnx, needs_memory=True, place="model.onnx")
if importlib.util.find_spec("plyvel"):
    KINDS["leveldb"] = Kind(_database_seeds("LEVELDB"), _load_database("LEVELDB"), place="db")

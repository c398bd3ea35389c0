"""JPEGs decoded on the device: the stand-in's pixels, transformed as the CPU transforms them."""

from __future__ import annotations

import gc
import importlib.util
import inspect
import io
import json
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pycaffe_fire import Net, schema
from pycaffe_fire.backend import choice
from pycaffe_fire.backend.base import Backend
from pycaffe_fire.backend.choice import ON_GPU, GpuOptions, choose_backend
from pycaffe_fire.backend.cuda import CudaBackend, jpeg
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.data.bad_records import SKIP
from pycaffe_fire.data.datum import encode_datum, image_datum
from pycaffe_fire.data.image import decode_image, plain_jpeg
from pycaffe_fire.data.writer import DatabaseWriter
from pycaffe_fire.errors import BackendError, DataError
from pycaffe_fire.layers import Context
from pycaffe_fire.layers.feed import LOADER_THREADS
from pycaffe_fire.schema import write_blob
from pycaffe_fire.solver import Solver, SolverOptions
from tests.cuda import fake_nvimgcodec
from tests.cuda.fake_nvimgcodec import FakeNvimgcodec, pixels_of

ORIENTATION = 0x0112
CROP = "crop_size: 8 mirror: true scale: 0.00390625"


@pytest.fixture
def library(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> FakeNvimgcodec:
    fake = FakeNvimgcodec(cupy)
    monkeypatch.setattr(jpeg, "load", lambda: fake)
    monkeypatch.setattr(fake_nvimgcodec.Image, "freed_too_early", [])
    return fake


@pytest.fixture
def device(library: FakeNvimgcodec) -> Any:
    made = CudaBackend(0, jpeg=True)
    library.decoded = 0
    return made


def drawn(number: int, size: tuple[int, int] = (13, 10), mode: str = "RGB") -> Image.Image:
    """An image that JPEG does not spoil much."""
    rng = np.random.default_rng(number)
    small = Image.fromarray(rng.integers(0, 256, (4, 4, 3), np.uint8))
    return small.resize(size, Image.Resampling.BICUBIC).convert(mode)


def encoded(image: Image.Image, kind: str = "JPEG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def as_decoded(data: bytes, channels: int) -> np.ndarray[Any, Any]:
    """What the stand-in makes of it, as Caffe has images: BGR, (channels, height, width)."""
    return np.ascontiguousarray(pixels_of(data, channels)[:, :, ::-1].transpose(2, 0, 1))


Pair = tuple[bytes, Any]  # an encoded image, and its pixels: an array, or None for the CPU's


def pairs(files: list[bytes], channels: int = 3, on_cpu: tuple[int, ...] = ()) -> list[Pair]:
    """With the device's pixels, except where the CPU has to decode."""
    return [
        (data, None if i in on_cpu else as_decoded(data, channels)) for i, data in enumerate(files)
    ]


def write_both(folder: Path, files: list[Pair], **forced: bool) -> tuple[Path, Path]:
    """A database of encoded images, and one of the pixels that they should become."""
    given, wanted = folder / "encoded", folder / "raw"
    with DatabaseWriter(given) as ours, DatabaseWriter(wanted) as theirs:
        for i, (data, pixels) in enumerate(files):
            ours.put(b"%08d" % i, image_datum(data, i % 10))
            if pixels is None:
                pixels = np.ascontiguousarray(decode_image(data, "it", **forced))
            theirs.put(b"%08d" % i, encode_datum(pixels, i % 10))
    return given, wanted


def a_net(source: Path, transform: str, batch: int = 4) -> Any:
    text = f"""
    layer {{ name: "data" type: "Data" top: "data" top: "label"
      transform_param {{ {transform} }}
      data_param {{ source: "{source}" backend: LMDB batch_size: {batch} }} }}
    layer {{ name: "copy" type: "Power" bottom: "data" top: "copy" }}
    """
    return schema.parse_text(text, schema.NetParameter())


def batches(
    backend: Backend, param: Any, phase: int = schema.TRAIN, count: int = 6, **context: Any
) -> list[list[Any]]:
    net = Net(param, phase, backend=backend, context=Context(5, **context))
    found = []
    try:
        for step in range(count):
            net.context.step = step
            net.forward()
            found.append([np.array(net.blobs[name].data) for name in ("data", "label", "copy")])
    finally:
        net.close()
    return found


def assert_same(got: list[list[Any]], want: list[list[Any]]) -> None:
    for mine, theirs in zip(got, want, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(one, other)


SIZES = ((13, 10), (8, 8), (31, 9), (16, 40), (12, 12), (9, 17), (13, 11))


@pytest.mark.parametrize("phase", [schema.TRAIN, schema.TEST], ids=["train", "test"])
def test_sizes_that_change(
    device: Any, library: FakeNvimgcodec, tmp_path: Path, phase: int
) -> None:
    files = [encoded(drawn(i, SIZES[i % len(SIZES)])) for i in range(16)]
    given, wanted = write_both(tmp_path, pairs(files))
    want = batches(NumPyBackend(), a_net(wanted, CROP), phase)
    assert_same(batches(device, a_net(given, CROP), phase), want)
    assert library.decoded >= 24 and fake_nvimgcodec.Image.freed_too_early == []


TRANSFORMS = {
    "plain": "",
    "values": "crop_size: 7 mirror: true mean_value: 104 mean_value: 117 mean_value: 123",
    "file": 'crop_size: 8 mirror: true scale: 0.017 mean_file: "{folder}/mean.binaryproto"',
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_the_rest_is_the_usual_transform(transform: str, device: Any, tmp_path: Path) -> None:
    given, wanted = write_both(tmp_path, pairs([encoded(drawn(i)) for i in range(16)]))
    mean = np.random.default_rng(0).random((1, 3, 10, 13), np.float32) * 200
    write_blob(tmp_path / "mean.binaryproto", mean)
    transform = transform.format(folder=tmp_path)
    want = batches(NumPyBackend(), a_net(wanted, transform))
    assert_same(batches(device, a_net(given, transform)), want)


def test_what_it_refuses_the_cpu_decodes(
    device: Any, library: FakeNvimgcodec, tmp_path: Path
) -> None:
    """PNG, progressive and CMYK among plain JPEGs, whole batches of them included."""
    files = [encoded(drawn(i)) for i in range(16)]
    files[1] = files[8] = encoded(drawn(1), "PNG")
    files[2] = files[9] = encoded(drawn(2), progressive=True)
    files[7] = files[10] = encoded(drawn(3, mode="CMYK"))
    files[11] = encoded(drawn(11), "PNG")  # so 8 to 11 have nothing for the device
    elsewhere = (1, 2, 7, 8, 9, 10, 11)
    given, wanted = write_both(tmp_path, pairs(files, on_cpu=elsewhere))
    assert_same(batches(device, a_net(given, CROP)), batches(NumPyBackend(), a_net(wanted, CROP)))
    library.refuses.discard("progressive")
    device_too = tuple(i for i in elsewhere if i not in (2, 9))
    given, wanted = write_both(tmp_path / "more", pairs(files, on_cpu=device_too))
    assert_same(batches(device, a_net(given, CROP)), batches(NumPyBackend(), a_net(wanted, CROP)))


def test_colours_that_are_stored_as_such(
    device: Any, library: FakeNvimgcodec, tmp_path: Path
) -> None:
    """A JPEG without brightness and differences: decoders guess, so libjpeg's guess counts."""
    data = bytearray(encoded(drawn(0), keep_rgb=True))
    assert plain_jpeg(bytes(data), 0, False, False) is None
    given, wanted = write_both(tmp_path, pairs([bytes(data)] * 4, on_cpu=(0, 1, 2, 3)))
    assert_same(batches(device, a_net(given, "")), batches(NumPyBackend(), a_net(wanted, "")))
    assert library.decoded == 0


@pytest.mark.parametrize(
    ("mode", "forced", "channels"),
    [("L", "", 1), ("L", "force_color: true", 3), ("RGB", "force_gray: true", 1)],
)
def test_grey(mode: str, forced: str, channels: int, device: Any, tmp_path: Path) -> None:
    files = [encoded(drawn(i, mode=mode)) for i in range(8)]
    given, wanted = write_both(tmp_path, pairs(files, channels))
    want = batches(NumPyBackend(), a_net(wanted, CROP))
    assert_same(batches(device, a_net(given, f"{CROP} {forced}")), want)


def test_records_of_pixels_and_floats_in_between(device: Any, tmp_path: Path) -> None:
    """A batch with floats is transformed on the host, and so decoded there."""
    floats = schema.Datum(channels=3, height=10, width=13, label=6, float_data=np.ones(390) / 7)
    on_host = (1, 4, 5, 6, 7)
    with DatabaseWriter(tmp_path / "given") as ours, DatabaseWriter(tmp_path / "raw") as theirs:
        for i in range(12):
            data, key = encoded(drawn(i)), b"%08d" % i
            pixels = decode_image(data, "it") if i in on_host else as_decoded(data, 3)
            raw = encode_datum(np.ascontiguousarray(pixels), i)
            special = {1: raw, 6: floats.SerializeToString()}
            ours.put(key, special.get(i, image_datum(data, i)))
            theirs.put(key, special.get(i, raw))
    want = batches(NumPyBackend(), a_net(tmp_path / "raw", CROP))
    assert_same(batches(device, a_net(tmp_path / "given", CROP)), want)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut off": lambda data: data[: len(data) // 2],
    "no frame": lambda data: data[:2] + b"\xff\xfe\0\x04ab" + data[-2:],
    "empty": lambda data: b"",
    "no entropy": lambda data: data[: data.index(b"\xff\xda")] + b"\xff\xd9",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_records(damage: Callable[[bytes], bytes], device: Any, tmp_path: Path) -> None:
    """Named, or skipped for the next one in the database, as without a device."""
    files = [encoded(drawn(i)) for i in range(8)]
    repaired = pairs(files)
    # The one in place of a damaged record is decoded on the host.
    after = np.ascontiguousarray(decode_image(files[3], "it"))
    with (
        DatabaseWriter(tmp_path / "damaged") as ours,
        DatabaseWriter(tmp_path / "mended") as theirs,
    ):
        for i, data in enumerate(files):
            bad = i == 2
            ours.put(b"%08d" % i, image_datum(damage(data) if bad else data, i))
            theirs.put(b"%08d" % i, encode_datum(after if bad else repaired[i][1], 3 if bad else i))
    with pytest.raises(DataError, match="00000002"):
        batches(device, a_net(tmp_path / "damaged", CROP), count=1)
    want = batches(NumPyBackend(), a_net(tmp_path / "mended", CROP))
    got = batches(device, a_net(tmp_path / "damaged", CROP), bad_records=SKIP)
    assert_same(got, want)


def test_labels_and_sizes_are_looked_at(device: Any, tmp_path: Path) -> None:
    files = [encoded(drawn(i)) for i in range(4)]
    given, _ = write_both(tmp_path, pairs(files))
    with pytest.raises(DataError, match="has label 3, outside the 3 classes"):
        batches(device, a_net(given, f"{CROP} num_labels: 3"), count=1)
    files[2] = encoded(drawn(2, (11, 10)))
    given, _ = write_both(tmp_path / "sizes", pairs(files))
    with pytest.raises(DataError, match=r"has shape \(3, 10, 11\), the first record"):
        batches(device, a_net(given, ""), count=1)


def test_one_image_a_batch_may_have_any_size(device: Any, tmp_path: Path) -> None:
    """As in Caffe, and then on the host."""
    files = [encoded(drawn(i, SIZES[i])) for i in range(6)]
    given, wanted = write_both(tmp_path, pairs(files, on_cpu=tuple(range(6))))
    want = batches(NumPyBackend(), a_net(wanted, "", batch=1))
    assert_same(batches(device, a_net(given, "", batch=1)), want)


def test_augmented_images_are_decoded_on_the_host(
    device: Any, library: FakeNvimgcodec, tmp_path: Path
) -> None:
    given, wanted = write_both(
        tmp_path, pairs([encoded(drawn(i)) for i in range(4)], 3, (0, 1, 2, 3))
    )
    resized = "resize_param { prob: 1 resize_mode: WARP height: 9 width: 9 interp_mode: LINEAR }"
    want = batches(NumPyBackend(), a_net(wanted, resized))
    assert_same(batches(device, a_net(given, resized)), want)
    assert library.decoded == 0


# ImageData.


def image_list(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).write_bytes(data)
    lines = [f"{folder}/{name} {i}" for i, name in enumerate(files)]
    (folder / "list.txt").write_text("\n".join(lines))
    return folder / "list.txt"


def a_list_net(source: Path, own: str = "", transform: str = "") -> Any:
    text = f"""
    layer {{ name: "data" type: "ImageData" top: "data" top: "label"
      transform_param {{ {transform} }}
      image_data_param {{ source: "{source}" batch_size: 4 {own} }} }}
    layer {{ name: "copy" type: "Power" bottom: "data" top: "copy" }}
    """
    return schema.parse_text(text, schema.NetParameter())


def turned(number: int) -> bytes:
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    return encoded(drawn(number, (10, 13)), exif=exif)


@pytest.mark.parametrize(
    ("own", "on_device"),
    [("", 2), ("is_color: false", 2), ("new_height: 9 new_width: 9", 0), ("cache: true", 0)],
)
def test_image_files(
    own: str, on_device: int, device: Any, library: FakeNvimgcodec, tmp_path: Path
) -> None:
    """A PNG and an image that lies on its side are the host's, and so is whatever is resized."""
    upright = Image.Exif()
    upright[ORIENTATION] = 1
    files = {
        "a.jpg": encoded(drawn(0)), "b.png": encoded(drawn(1), "PNG"),
        "c.jpg": encoded(drawn(2), exif=upright), "d.jpg": turned(3),
    }  # fmt: skip
    source = image_list(tmp_path, files)
    got = batches(device, a_list_net(source, own), count=1)[0][0]
    want = batches(NumPyBackend(), a_list_net(source, own), count=1)[0][0]
    assert library.decoded in (
        on_device,
        2 * on_device,
        3 * on_device,
        4 * on_device,
        5 * on_device,
    )
    channels = 1 if "false" in own else 3
    for i, name in enumerate(files):
        if on_device and name in ("a.jpg", "c.jpg"):
            np.testing.assert_array_equal(got[i], as_decoded(files[name], channels))
        else:
            np.testing.assert_array_equal(got[i], want[i])


def test_files_that_are_missing(device: Any, tmp_path: Path) -> None:
    files = {f"{i}.jpg": encoded(drawn(i)) for i in range(5)}
    source = image_list(tmp_path, files)
    (tmp_path / "2.jpg").unlink()
    with pytest.raises(DataError, match=r"2\.jpg: the image cannot be read"):
        batches(device, a_list_net(source), count=1)


# Order of work.


def test_training_with_a_graph(device: Any, tmp_path: Path) -> None:
    """Loaders decode while iterations are recorded and replayed: the same weights."""
    given, _ = write_both(tmp_path, pairs([encoded(drawn(i)) for i in range(10)]))
    layers = """
    layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
      inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
    """
    found = []
    for cuda_graph in (False, True):
        param = schema.parse_text(
            'base_lr: 0.01 lr_policy: "fixed" random_seed: 1 snapshot_after_train: false',
            schema.SolverParameter(),
        )
        param.net_param.CopyFrom(a_net(given, CROP))
        del param.net_param.layer[1]
        param.net_param.MergeFrom(schema.parse_text(layers, schema.NetParameter()))
        solver = Solver(param, SolverOptions(device, param.random_seed, cuda_graph=cuda_graph))
        solver.step(9)
        found.append(np.array(solver.net.params["ip"][0].data))
        solver.close()
    np.testing.assert_array_equal(found[1], found[0])
    assert fake_nvimgcodec.Image.freed_too_early == []


def test_memory_of_loaders_is_used_again(device: Any, tmp_path: Path) -> None:
    """One net after the other, and the host waits for none: the pool gives memory again that the
    device may still read."""
    given, wanted = write_both(tmp_path, pairs([encoded(drawn(i)) for i in range(8)]))
    for _ in range(3):
        net = Net(a_net(given, CROP), schema.TRAIN, backend=device, context=Context(5))
        net.forward()
        net.close()
        del net
        gc.collect()
    want = batches(NumPyBackend(), a_net(wanted, CROP))
    assert_same(batches(device, a_net(given, CROP)), want)


def test_recorders_do_not_see_it(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loaders decode whenever they like, also while the numbers of a graph are refreshed."""
    recorder = types.SimpleNamespace(launched=lambda *_: pytest.fail("launched"))
    monkeypatch.setattr(device.kernels, "recorder", recorder)
    decoder, data = device.image_decoder(), encoded(drawn(0))
    records = decoder.records(device.host_buffer((1, 3 + 98)))
    records.host[:] = 0
    records.fill(dict(enumerate(decoder.decode([data], [(3, 10, 13)]))), (3, 10, 13))
    with records.reading() as made:
        found = made.get()[3:].view(np.uint8)[:390].reshape(3, 10, 13)
    np.testing.assert_array_equal(found, as_decoded(data, 3))


def test_a_closed_loader_leaves_nothing_behind(device: Any, tmp_path: Path) -> None:
    """Batches that nobody took are done, too, before the host's memory is given away."""
    given, _ = write_both(tmp_path, pairs([encoded(drawn(i)) for i in range(8)]))
    batches(device, a_net(given, CROP), count=1)
    assert not device.image_decoder()._kept


def test_whole_images_of_few_batches_at_a_time(device: Any, tmp_path: Path) -> None:
    given, _ = write_both(tmp_path, pairs([encoded(drawn(i)) for i in range(8)]))
    most, decoder = 0, device.image_decoder()
    net = Net(a_net(given, CROP), schema.TRAIN, backend=device, context=Context(5))
    for _ in range(20):
        net.forward()
        most = max(most, len(decoder._kept))
    net.close()
    assert 0 < most <= jpeg.BATCHES + LOADER_THREADS


# Asking for it.


def test_the_header_says_it(device: Any, cuda: Any) -> None:
    assert device.describe().endswith(", JPEG by nvImageCodec 0.9.0 (not the CPU's pixels)")
    assert "JPEG" not in cuda.describe()


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (ImportError("no such module"), r"cannot be loaded \(no such module\); pip install"),
        (types.SimpleNamespace(__version__="0.6.1"), r"nvImageCodec 0\.6\.1 is too old; pip"),
    ],
)
def test_a_library_that_is_missing(
    broken: Any, message: str, cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def imported(name: str) -> Any:
        if isinstance(broken, Exception):
            raise broken
        return broken

    monkeypatch.setattr(jpeg, "importlib", types.SimpleNamespace(import_module=imported))
    with pytest.raises(BackendError, match="--jpeg gpu: .*" + message):
        CudaBackend(0, jpeg=True)


def test_a_library_that_does_not_start(
    library: FakeNvimgcodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.refuses.add("RGB")  # as without nvJPEG
    with pytest.raises(BackendError, match="--jpeg gpu: .* decodes no JPEG on this GPU; pip inst"):
        CudaBackend(0, jpeg=True)

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("Could not create decoder. Code: 8")

    monkeypatch.setattr(library, "Decoder", fails)
    with pytest.raises(BackendError, match="--jpeg gpu: nvImageCodec does not start: Could not"):
        CudaBackend(0, jpeg=True)


def test_a_library_that_fails_later(
    device: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(device.image_decoder()._decoder, "decode", fails, raising=False)
    given, _ = write_both(tmp_path, pairs([encoded(drawn(i)) for i in range(4)]))
    with pytest.raises(BackendError, match=r"failed \(out of memory\); leave out --jpeg gpu"):
        batches(device, a_net(given, CROP), count=1)


def test_it_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    options = GpuOptions(jpeg=ON_GPU)
    with pytest.raises(BackendError, match="--jpeg gpu needs a GPU: say which"):
        choose_backend(None, options=options)
    missing = types.SimpleNamespace(cupy=None, reason="there is no driver")
    monkeypatch.setattr(choice, "probe", lambda device: missing)
    monkeypatch.setattr(choice, "_own_device", lambda first: first)
    with pytest.raises(BackendError, match="--jpeg gpu needs a GPU: there is no driver"):
        choose_backend("auto", options=options)


# The real library, as far as it goes without a GPU.

REAL = """
import json, sys
from nvidia import nvimgcodec as real
names = [name for name in json.loads(sys.argv[1]) if not hasattr(real, name)]
kinds = [k for k in ("GPU_ONLY", "HYBRID_CPU_GPU") if not hasattr(real.BackendKind, k)]
specs = [s for s in ("SRGB", "GRAY") if not hasattr(real.ColorSpec, s)]
real.Backend(real.BackendKind.GPU_ONLY)
real.DecodeParams(apply_exif_orientation=False, color_spec=real.ColorSpec.GRAY)
texts = [real.Decoder.__init__.__doc__, real.Decoder.decode.__doc__]
sizes = []
for path in sys.argv[2:]:
    try:
        stream = real.CodeStream(open(path, "rb").read())
        sizes.append([stream.codec_name, stream.height, stream.width, stream.num_channels])
    except RuntimeError as error:
        sizes.append(str(error))
print(json.dumps([real.__version__, names + kinds + specs, texts, sizes]))
"""


def test_the_stand_in_is_like_the_real_one(tmp_path: Path) -> None:
    if importlib.util.find_spec("nvidia") is None or not importlib.util.find_spec(
        "nvidia.nvimgcodec"
    ):
        pytest.skip("nvidia-nvimgcodec-cu13 is not installed")
    files = {
        "plain.jpg": encoded(drawn(0)), "grey.jpg": encoded(drawn(1, mode="L")),
        "cmyk.jpg": encoded(drawn(2, mode="CMYK")), "a.png": encoded(drawn(3), "PNG"),
        "cut.jpg": DAMAGE["no frame"](encoded(drawn(0))), "empty.jpg": b"",
    }  # fmt: skip
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    public = [n for n in vars(FakeNvimgcodec) if not n.startswith("_")] + ["Decoder"]
    paths = [str(tmp_path / name) for name in files]
    done = subprocess.run(
        [sys.executable, "-c", REAL, json.dumps(public), *paths], capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    version, missing, (made, decodes), sizes = json.loads(done.stdout)
    assert tuple(int(part) for part in version.split(".")[:2]) >= jpeg.OLDEST and not missing
    fake = FakeNvimgcodec(None)
    for argument in list(inspect.signature(fake.Decoder).parameters):
        assert f"{argument}: " in made
    for argument in list(inspect.signature(fake.Decoder.decode).parameters)[1:]:
        assert f"{argument}: " in decodes
    assert "None in returned list on positions which could not be decoded" in decodes
    assert sizes == [
        ["jpeg", 10, 13, 3], ["jpeg", 10, 13, 1], ["jpeg", 10, 13, 4], ["png", 10, 13, 3],
        "Failed to get image info", "Failed to get image info",
    ]  # fmt: skip

"""Data layers inside nets: Caffe's batches from image files, windows, memory, HDF5 both ways."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.data.image import read_image
from pycaffe_fire.data.resize import resize
from pycaffe_fire.data.windows import Window, cut_window
from pycaffe_fire.errors import DataError, LayerError, NetError
from pycaffe_fire.layers import Context
from tests.random_numbers import RNG

GOLDEN = Path(__file__).parents[1] / "golden" / "data"


def make_net(text: str, phase: int = caffe.TEST, **context: Any) -> Any:
    net = schema.parse_text(text, schema.NetParameter(), "net")
    net.state.phase = phase
    return caffe.Net(net, phase, context=Context(**context) if context else None)


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("images", "list.txt"):
        source = GOLDEN / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def image_net(extra: str = "", transform: str = "", **fields: Any) -> str:
    given = {"source": '"list.txt"', "root_folder": '"./"', "batch_size": 4, **fields}
    inside = " ".join(f"{name}: {value}" for name, value in given.items())
    return (
        f'layer {{ name: "d" type: "ImageData" top: "data" top: "label" {extra} '
        f"transform_param {{ {transform} }} image_data_param {{ {inside} }} }}"
    )


@pytest.mark.parametrize("case", ["imagedata", "imagedata_gray"])
def test_caffes_batches_from_files(images: Any, case: str) -> None:
    expected = np.load(GOLDEN / f"{case}.npz")
    net = make_net(str(expected["prototxt"]))
    for i in range(3):
        net.forward()
        assert np.array_equal(net.blobs["label"].data, expected[f"label{i}"])
        error = np.abs(net.blobs["data"].data - expected[f"data{i}"])
        png = [n for n in range(3) if (3 * i + n) % 12 in (0, 2, 4, 6, 7, 8, 10)]
        assert error[png].max() == 0  # decoders of JPEG may differ, of PNG not
        assert error.max() <= 12 and error.mean() < 1
    net.close()


def test_shuffled_files_come_once_per_epoch(images: Any) -> None:
    size: dict[str, Any] = {"new_height": 20, "new_width": 20}
    (images / "list.txt").write_text(
        "".join(
            f"images/{i:02d}.{'jpg' if i in (1, 3, 5, 9, 11) else 'png'} {i}\n" for i in range(12)
        )
    )

    def epochs(seed: int, cache: str = "false") -> Any:
        net = make_net(image_net(shuffle="true", cache=cache, **size), caffe.TRAIN, seed=seed)
        labels = []
        for step in range(6):
            net.context.step = step
            net.run_forward()
            labels += net.blobs["label"].data.astype(int).tolist()
        net.close()
        return labels[:12], labels[12:]

    first, second = epochs(1)
    assert sorted(first) == sorted(second) == list(range(12)) and first != second
    assert epochs(1, "true") == (first, second) != epochs(2)


def test_short_side_and_least_size(images: Any) -> None:
    net = make_net(image_net(short_side=16, batch_size=1))  # 00.png is 50 wide, 40 high
    assert net.blobs["data"].shape == (1, 3, 16, 20)
    net.close()
    net = make_net(image_net(min_height=80, min_width=60, batch_size=1))
    assert net.blobs["data"].shape == (1, 3, 80, 100)
    net.close()


@pytest.mark.parametrize(
    "net, error, message",
    [
        (
            image_net(source='""'),
            LayerError,
            'layer "d" .ImageData.: image_data_param needs a source',
        ),
        (image_net(new_height=3), LayerError, "new_height and new_width must be given together"),
        (image_net(source='"no.txt"'), DataError, 'layer "d".*no.txt: the list of images cannot'),
        (image_net(root_folder='"x/"'), DataError, "list.txt: x/images/00.png: the image cannot"),
        (image_net(transform="crop_size: 99"), DataError, "crop_size 99 is larger than the image"),
        (image_net(batch_size=0), LayerError, "batch_size must be at least 1"),
    ],
)
def test_image_data_errors(images: Any, net: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        make_net(net)


def test_bad_lines_of_a_list(images: Any) -> None:
    for text, message in (
        ("images/00.png\n", 'list.txt:1: expected "path label"'),
        ("a b.png 3\nimages/00.png x\n", "list.txt:2: expected"),
        ("\n", "names no images"),
    ):
        (images / "list.txt").write_text(text)
        with pytest.raises(DataError, match=message):
            make_net(image_net())


def test_images_of_different_sizes_are_named(images: Any) -> None:
    net = make_net(image_net())
    with pytest.raises(DataError, match=r"image ./images/01.jpg: has shape \(3, 37, 37\)"):
        net.forward()
    net.close()


BEHIND = """
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param {
  num_output: 8 kernel_size: 5 stride: 2 weight_filler { type: "xavier" } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool"
  pooling_param { pool: AVE global_pooling: true } }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip" inner_product_param {
  num_output: 12 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
FED = """
layer { name: "data" type: "Input" top: "data"
  input_param { shape { dim: %d dim: %d dim: %d dim: %d } } }
layer { name: "label" type: "Input" top: "label" input_param { shape { dim: 1 } } }
"""


@pytest.mark.parametrize("phase", [caffe.TRAIN, caffe.TEST])
def test_one_image_of_any_size_per_pass(images: Any, phase: Any) -> None:
    """Each pass gives what a net of that size gives; sizes come back in the second epoch."""
    net = make_net(image_net(transform="mean_value: 100", batch_size=1) + BEHIND, phase)
    sizes = []
    for _ in range(14):
        net.clear_param_diffs()
        loss = float(net.forward()["loss"])
        net.backward()
        data = net.blobs["data"].data
        sizes.append(data.shape)
        alone = make_net(FED % data.shape + BEHIND, phase)
        for name, blobs in net.params.items():
            for mine, other in zip(blobs, alone.params[name], strict=True):
                other.data[...] = mine.data
        alone.forward(data=data, label=net.blobs["label"].data)
        assert loss == pytest.approx(float(alone.blobs["loss"].data), rel=1e-5)
        alone.backward()
        for name in ("conv", "ip"):
            for mine, other in zip(net.params[name], alone.params[name], strict=True):
                np.testing.assert_allclose(mine.diff, other.diff, rtol=1e-3, atol=1e-5)
    net.close()
    assert len(set(sizes)) == 3 and sizes[12:] == sizes[:2]


def test_a_image_too_small_for_the_net_is_named_by_the_layer(images: Any) -> None:
    net = make_net(image_net(batch_size=1) + BEHIND.replace("kernel_size: 5", "kernel_size: 38"))
    with pytest.raises(LayerError, match='"conv".*kernel .38, 38. does not fit'):
        for _ in range(12):
            net.forward()
    net.close()


def test_a_solver_trains_on_images_of_any_size(images: Any) -> None:
    (images / "net.prototxt").write_text(image_net(batch_size=1, shuffle="true") + BEHIND)
    (images / "solver.prototxt").write_text(
        'net: "net.prototxt" base_lr: 0.001 lr_policy: "fixed" momentum: 0.9 iter_size: 2 '
        "snapshot_after_train: false display: 0"
    )
    solver = caffe.SGDSolver("solver.prototxt")
    before = solver.net.params["conv"][0].data.copy()
    solver.step(7)
    after = solver.net.params["conv"][0].data
    assert np.isfinite(after).all() and (after != before).any()
    solver.net.close()


def test_labels_above_num_labels(images: Any) -> None:
    net = make_net(image_net(transform="num_labels: 3 crop_size: 9"))
    with pytest.raises(DataError, match="03.jpg: has label 3, outside the 3 classes"):
        net.forward()
    net.close()


# MemoryData.

MEMORY = """layer { name: "d" type: "MemoryData" top: "data" top: "label"
    memory_data_param { batch_size: 2 channels: 1 height: 2 width: 3 } }"""


def test_memory_data_goes_round() -> None:
    net = make_net(MEMORY)
    layer = net.layers[0]
    with pytest.raises(LayerError, match="call set_arrays"):
        net.forward()
    data = RNG.standard_normal((4, 1, 2, 3)).astype(np.float32)
    for _ in range(2):  # and starts anew with new arrays
        layer.set_arrays(data, np.arange(4).reshape(4, 1, 1, 1))
        for first in (0, 2, 0):
            net.forward()
            assert np.array_equal(net.blobs["data"].data, data[first : first + 2])
            assert net.blobs["label"].data.tolist() == [first, first + 1]


def test_memory_data_in_leaves() -> None:
    net = make_net(MEMORY, leaves=2, own_leaves=(0, 1))
    data = np.arange(4 * 6, dtype=np.float32).reshape(4, 1, 2, 3)
    net.layers[0].set_arrays(data, np.arange(4))
    seen = []
    for step in range(2):
        for leaf in range(2):
            net.context.step, net.context.leaf = step, leaf
            net.run_forward()
            seen += net.blobs["label"].data.tolist()
    assert seen == [0, 1, 2, 3]


def test_memory_data_errors() -> None:
    net = make_net(MEMORY)
    for data, labels, message in (
        (np.zeros((2, 1, 3, 2)), np.zeros(2), r"shape \(N, 1, 2, 3\), got \(2, 1, 3, 2\)"),
        (np.zeros((2, 1, 2, 3)), np.zeros(3), "one label per image, 2, got"),
        (np.zeros((3, 1, 2, 3)), np.zeros(3), "multiple of batch_size 2, got 3"),
    ):
        with pytest.raises(LayerError, match=message):
            net.layers[0].set_arrays(data, labels)
    with pytest.raises(NetError, match="needs batch_size, channels, height and width, got 2, 1"):
        make_net(MEMORY.replace("height: 2", ""))


# HDF5.


def hdf5_net(shuffle: Any) -> str:
    return f"""layer {{ name: "d" type: "HDF5Data" top: "data" top: "label"
        hdf5_data_param {{ source: "h5.txt" batch_size: 5 shuffle: {shuffle} }} }}"""


@pytest.fixture
def hdf5(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number, rows in enumerate((range(0, 4), range(4, 7), range(7, 15))):
        with h5py.File(f"{number}.h5", "w") as file:
            file["data"] = np.array(rows, np.float32)[:, None] * [1, 10]
            file["label"] = np.array(rows, np.float32)
    Path("h5.txt").write_text("0.h5\n1.h5\n2.h5\n")


def test_hdf5_shuffles_files_and_rows(hdf5: Any) -> None:
    def run(seed: int, shuffle: str = "true") -> Any:
        net = make_net(hdf5_net(shuffle), seed=seed)
        labels = []
        for step in range(6):
            net.context.step = step
            net.run_forward()
            data, label = net.blobs["data"].data, net.blobs["label"].data
            assert np.array_equal(data, label[:, None] * np.array([1, 10], np.float32))
            labels += label.astype(int).tolist()
        net.close()
        return labels[:15], labels[15:]

    assert run(1, "false") == (list(range(15)),) * 2
    first, second = run(1)
    assert sorted(first) == sorted(second) == list(range(15)) and first != second
    assert run(1) == (first, second) != run(2)
    files = [0 if i < 4 else 1 if i < 7 else 2 for i in first]
    assert sum(a != b for a, b in zip(files, files[1:], strict=False)) == 2  # file by file


OUTPUT = """
    layer { name: "in" type: "Input" top: "x" top: "y" input_param {
        shape { dim: 2 dim: 3 dim: 1 dim: 2 } shape { dim: 2 } } }
    layer { name: "out" type: "HDF5Output" bottom: "x" bottom: "y"
        hdf5_output_param { file_name: "out.h5" } }"""


def test_hdf5_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    net = make_net(OUTPUT)
    passes = [RNG.standard_normal((2, 3, 1, 2)).astype(np.float32) for _ in range(3)]
    for i, x in enumerate(passes):
        net.forward(x=x, y=np.array([i, i + 0.5], np.float32))
    assert not Path("out.h5").exists()
    net.close()
    assert [p.name for p in tmp_path.iterdir()] == ["out.h5"]
    with h5py.File("out.h5") as file:
        assert np.array_equal(file["data"], np.concatenate(passes))
        assert file["data"].dtype == np.float32
        assert file["label"].shape == (6, 1, 1, 1)
        assert file["label"][:, 0, 0, 0].tolist() == [0, 0.5, 1, 1.5, 2, 2.5]


def test_hdf5_output_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LayerError, match="the folder of no/out.h5 does not exist"):
        make_net(OUTPUT.replace("out.h5", "no/out.h5"))
    with pytest.raises(LayerError, match="as many rows, got 2 and 3"):
        make_net(OUTPUT.replace("shape { dim: 2 }", "shape { dim: 3 }"))


# WindowData.


@pytest.fixture
def windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    images = [RNG.integers(0, 256, (30, 40, 3), dtype=np.uint8) for _ in range(2)]
    for i, image in enumerate(images):
        Image.fromarray(image).save(f"{i}.png")
    Path("windows.txt").write_text(
        "# 0\n0.png\n3\n30\n40\n3\n"
        "5 1.0 10 5 29 24\n5 0.6 3 2 20 21\n7 0.2 0 0 9 9\n"
        "# 1\n1.png\n3\n30\n40\n2\n"
        "2 0.9 0 3 12 18\n1 0.4 20 10 39 29\n"
    )
    return [read_image(f"{i}.png") for i in range(2)]


def window_net(transform: str = "", **fields: Any) -> str:
    given = {"source": '"windows.txt"', "batch_size": 8, "fg_fraction": 0.25, **fields}
    inside = " ".join(f"{name}: {value}" for name, value in given.items())
    return f"""layer {{ name: "w" type: "WindowData" top: "data" top: "label"
        transform_param {{ crop_size: 12 {transform} }} window_data_param {{ {inside} }} }}"""


def run_windows(text: str, passes: int = 6, seed: int = 1) -> Any:
    net = make_net(text, caffe.TRAIN, seed=seed)
    data, label = [], []
    with contextlib.closing(net):
        for step in range(passes):
            net.context.step = step
            net.run_forward()
            data.append(net.blobs["data"].data.copy())
            label.append(net.blobs["label"].data.astype(int))
    return np.stack(data), np.stack(label)


def test_windows_warped(windows: Any) -> None:
    data, label = run_windows(window_net("mean_value: 100 scale: 0.5"), 10)
    assert (label[:, :6] == 0).all()  # background first
    assert set(label[:, 6:].ravel()) == {2, 5}
    boxes = {
        0: [(0, 0, 0, 9, 9), (1, 20, 10, 39, 29)],
        2: [(1, 0, 3, 12, 18)],
        5: [(0, 10, 5, 29, 24), (0, 3, 2, 20, 21)],
    }
    seen = set()
    for got, kind in zip(data.reshape(-1, 3, 12, 12), label.ravel(), strict=True):
        matches = [
            box
            for box in boxes[kind]
            if np.array_equal(got, (warp(windows, *box).astype(np.float32) - 100) * np.float32(0.5))
        ]
        assert len(matches) == 1
        seen.add(matches[0])
    assert len(seen) == 5


def warp(images: Any, number: Any, x1: Any, y1: Any, x2: Any, y2: Any) -> Any:
    return resize(images[number][:, y1 : y2 + 1, x1 : x2 + 1], 12, 12)


def test_windows_are_the_same_for_any_leaves_and_seeded(windows: Any) -> None:
    text = window_net("mirror: true", context_pad=2, cache_images="true")
    data, label = run_windows(text)
    net = make_net(text, caffe.TRAIN, seed=1, leaves=4, own_leaves=(0, 1, 2, 3))
    for step in range(2):
        for leaf in range(4):
            net.context.step, net.context.leaf = step, leaf
            net.run_forward()
            part = slice(2 * leaf, 2 * leaf + 2)
            assert np.array_equal(net.blobs["data"].data, data[step, part])
            assert np.array_equal(net.blobs["label"].data, label[step, part])
    net.close()
    assert not np.array_equal(run_windows(text, seed=2)[1], label)


def test_context_and_square() -> None:
    image = RNG.integers(1, 256, (1, 30, 40), dtype=np.uint8)
    # 20 x 20 around (20, 15), enlarged by 12 / 8: columns 5 to 35, rows 0 to 30, the last of which
    # is not there.
    part, top, left = cut_window(image, Window(0, 1, 1, 10, 5, 29, 24), 12, 2, False, False, "w")
    assert (top, left) == (0, 0)
    assert np.array_equal(part, resize(image[:, 0:30, 5:36], 12, 12))
    # At the left edge: 10 wide, 20 high, square, so five columns lie outside.
    window = Window(0, 1, 1, 0, 4, 9, 23)
    part, top, left = cut_window(image, window, 21, 0, True, False, "w")
    assert (top, left) == (0, 5) and part.shape == (1, 21, 16)
    assert np.array_equal(part, resize(image[:, 4:25, 0:16], 21, 16))
    turned, _, left = cut_window(image, window, 21, 0, True, True, "w")
    assert left == 0 and np.array_equal(turned, part[:, :, ::-1])


def test_outside_of_the_image_is_nothing(windows: Any) -> None:
    Path("windows.txt").write_text("# 0\n0.png\n3\n30\n40\n1\n4 1.0 0 4 9 23\n")
    text = window_net("mean_value: 100", fg_fraction=1, crop_mode='"square"')
    data, label = run_windows(text, 1)
    assert (label == 4).all()
    assert (data[..., :3] == 0).all() and (data[..., 3:] != 0).any()


@pytest.mark.parametrize(
    "net, error, message",
    [
        (window_net(source='""'), LayerError, "needs a source"),
        (window_net(crop_mode='"fit"'), LayerError, 'crop_mode must be "warp" or "square"'),
        (window_net(context_pad=6), LayerError, "context_pad 6 leaves nothing of crop_size 12"),
        (window_net(source='"no.txt"'), DataError, "no.txt: the window file cannot be read"),
        (window_net(fg_threshold=2), DataError, "has no foreground windows, but a batch wants 2"),
        (window_net("mean_value: 1 mean_value: 2"), DataError, "2 mean_value for images of 3"),
    ],
)
def test_window_data_errors(windows: Any, net: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        make_net(net)


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("# 1", "1", r'windows.txt:10: expected "# number"'),
        ("0.png\n3", "0.png\n4294967295", "windows.txt: .*0.png has 4294967295 channels"),
        ("2 0.9 0 3 12 18", "2 0.9 0 3 12", "windows.txt:16: expected a path, channels"),
        ("30\n40\n2\n", "30\n40\n9\n", "expected a path, channels"),
        ("5 1.0 10", "0 1.0 10", "0.png has class 0; classes start at 1"),
    ],
)
def test_bad_window_files(windows: Any, old: str, new: str, message: str) -> None:
    path = Path("windows.txt")
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(DataError, match=message):
        make_net(window_net())


def test_window_outside_of_its_image(windows: Any) -> None:
    path = Path("windows.txt")
    path.write_text(path.read_text().replace("2 0.9 0 3 12 18", "2 0.9 0 3 12 44"))
    with pytest.raises(DataError, match=r'layer "w".*1.png: window 0 3 12 44 lies outside'):
        run_windows(window_net(fg_fraction=1))


# Labels that the net above does not know.

HEAD = """
layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
        inner_product_param {{ num_output: 3 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" {loss} }}
layer {{ name: "acc" type: "Accuracy" bottom: "ip" bottom: "label" top: "acc" {accuracy} }}
"""


def test_a_label_that_no_class_has_is_named_with_its_record(images: Any) -> None:
    net = make_net(image_net(transform="crop_size: 9") + HEAD.format(loss="", accuracy=""))
    with contextlib.closing(net), pytest.raises(DataError, match="03.jpg: has label 3, outside"):
        for _ in range(3):
            net.forward()


def test_such_records_are_skipped_where_that_is_asked_for(images: Any) -> None:
    text = image_net(transform="crop_size: 9") + HEAD.format(loss="", accuracy="")
    net = make_net(text, bad_records="skip")
    with contextlib.closing(net):
        labels = [net.forward(["label"])["label"].copy() for _ in range(3)]
        assert np.max(labels) < 3 and net.layers[0].skipped > 0


def test_labels_that_are_ignored_are_no_mistake(images: Any) -> None:
    head = HEAD.format(
        loss="loss_param { ignore_label: 3 }", accuracy="accuracy_param { ignore_label: 3 }"
    )
    net = make_net(image_net(transform="crop_size: 9") + head)
    with contextlib.closing(net):
        labels = [net.forward(["label"])["label"].copy() for _ in range(2)]
    assert 3 in np.array(labels)

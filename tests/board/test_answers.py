"""What the board says of a run is what the run's files hold."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pycaffe_fire import schema
from pycaffe_fire.backend import cpu_backend
from pycaffe_fire.board import trial
from pycaffe_fire.board.browse import Browser
from pycaffe_fire.board.deploy import harmless
from pycaffe_fire.board.trial import Trial
from pycaffe_fire.data import shapes
from pycaffe_fire.data.writer import DatabaseWriter
from pycaffe_fire.errors import DataError, NetError
from pycaffe_fire.layers import Context
from pycaffe_fire.net import Net

from .board_cases import CLASSES, EVIL, TEST_RECORDS, Server, image

pytest.importorskip("starlette", reason="the extra `board` is not installed")


def png(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def test_rows_say_how_runs_stand(server: Server) -> None:
    rows = server.rows()
    assert set(rows) == {"good", EVIL}
    row = rows["good"]
    assert (row["state"], row["iteration"], row["max_iter"]) == ("done", 40, 40)
    assert row["best"]["name"] == "test/accuracy" and row["images_per_second"] > 0
    assert row["epoch"] == 40 * 16 / 64
    assert rows["good"]["settings"]["base_lr"] == "0.05"


def test_curves_are_the_logs(server: Server, case: Path) -> None:
    run = server.rows()["good"]["id"]
    lines = (case / "runs" / "good" / "net_log.jsonl").read_text().splitlines()
    losses = [e["loss"] for e in map(json.loads, lines) if e["event"] == "trained"]
    found = server.json(f"/api/runs/{run}/curves?name=train/loss")["train/loss"]
    assert found["y"] == losses and found["x"] == list(range(40))
    assert server.ask(f"/api/runs/{run}/curves?by=colour")[0] == 400
    smooth = server.json(f"/api/runs/{run}/curves?smooth=9")
    assert smooth["train/loss"]["raw"] == losses and smooth["train/loss"]["y"] != losses
    assert "raw" not in smooth["test/accuracy"]  # tests are not smoothed


def test_one_run_has_its_facts(server: Server) -> None:
    found = server.json(f"/api/runs/{server.rows()['good']['id']}")
    titles = [title for title, _ in found["facts"]]
    assert titles == ["Accuracy protocol", "Hardware and software", "Hyperparameters"]
    assert [e["event"] for e in found["events"]][0] == "finished"
    assert {e["iteration"] for e in found["events"] if e["event"] == "saved"} == {20, 40}
    assert found["ranks"]["count"] == 1 and found["memory"]["planned"]["blobs"] > 0
    assert found["labels"] == ["blue", "green", "red <b>"]
    assert "conv" in [entry["name"] for entry in found["profile"]]
    assert found["timeline"]["iteration"] == 5
    assert "forward" in [span["kind"] for span in found["timeline"]["ranks"][0]]
    assert any("saved" in line for line in found["tail"])


def test_a_layer_has_all_that_is_known_of_it(server: Server, case: Path) -> None:
    run = server.rows()["good"]["id"]
    boxes = server.json(f"/api/runs/{run}/net")["boxes"]
    assert [b["layers"] for b in boxes if b["title"] == "conv"] == [["conv", EVIL]]
    found = server.json(f"/api/runs/{run}/layer?name=conv")
    assert found["bottoms"] == [["data", [16, 3, 12, 12]]]
    assert found["tops"] == [["conv", [16, 6, 10, 10]]]
    assert found["parameters"] == 6 * 3 * 9 + 6
    assert found["flops"] == 2 * 16 * 100 * 6 * 27
    assert found["histograms"][0]["parameters"][0]["name"] == "conv[0]"
    weights = next(
        layer.blobs
        for layer in schema.read_weights(case / "runs/good/net_iter_40.caffemodel")
        if layer.name == "conv"
    )
    assert found["weights"][0]["mean"] == pytest.approx(float(np.mean(weights[0])), rel=1e-4)
    assert sum(found["weights"][0]["histogram"]["counts"]) == 162
    content = server.ask(f"/api/runs/{run}/filters?name=conv&blob=0")[1]
    assert Image.open(io.BytesIO(content)).format == "PNG"
    assert server.ask(f"/api/runs/{run}/layer?name=none")[0] == 404


def test_the_archive_runs_elsewhere(server: Server, tmp_path: Path) -> None:
    run = server.rows()["good"]["id"]
    content = server.ask(f"/api/runs/{run}/archive?snapshot=net_iter_40.caffemodel")[1]
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert set(archive.namelist()) == {
            "net_iter_40.caffemodel", "deploy.prototxt", "train.prototxt", "labels.txt",
        }  # fmt: skip
        archive.extractall(tmp_path)
    param = schema.read_net(tmp_path / "deploy.prototxt")
    net = Net(param, cpu_backend(1), Context())
    net.copy_from(tmp_path / "net_iter_40.caffemodel")
    net.run_forward()
    assert net.blobs["prob"].data.sum() == pytest.approx(1)


def test_weights_leave_as_onnx(server: Server, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="the extra `convert` is not installed")
    run = server.rows()["good"]["id"]
    status, content, headers = server.ask(f"/api/runs/{run}/onnx?snapshot=net_iter_40.caffemodel")
    assert status == 200, content
    assert "net_iter_40.onnx" in headers["content-disposition"]
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    (found,) = session.run(None, {given.name: np.zeros((1, 3, 12, 12), np.float32)})
    assert found.sum() == pytest.approx(1, rel=1e-5)


def reference(case: Path) -> tuple[Any, Any, Any]:
    """Labels and scores of all test records, by a net of our own."""
    lines = (case / "runs" / "good" / "net_log.jsonl").read_text().splitlines()
    text = json.loads(lines[0])["tests"][0]["prototxt"].replace(
        "test_lmdb", str(case / "test_lmdb")
    )
    param = schema.parse_text(text, schema.NetParameter())
    net = Net(param, cpu_backend(1), Context())
    net.copy_from(case / "runs/good/net_iter_40.caffemodel")
    scores, labels = [], []
    for _ in range(-(-TEST_RECORDS // 16)):
        net.run_forward()
        net.context.step += 1
        scores.append(np.array(net.blobs["ip"].data))
        labels.append(np.array(net.blobs["label"].data))
    net.close()
    kept = np.concatenate(scores)[:TEST_RECORDS], np.concatenate(labels)[:TEST_RECORDS]
    matrix = np.zeros((CLASSES, CLASSES), int)
    for truth, guess in zip(kept[1].astype(int), kept[0].argmax(1), strict=True):
        matrix[truth, guess] += 1
    return matrix, kept[0], kept[1].astype(int)


def test_results_are_numpys(server: Server, case: Path) -> None:
    run = server.rows()["good"]["id"]
    found = server.job(f"/api/runs/{run}/results?snapshot=net_iter_40.caffemodel")
    matrix, scores, labels = reference(case)
    assert found["matrix"] == matrix.tolist()
    assert found["accuracy"] == pytest.approx(matrix.trace() / TEST_RECORDS)
    assert found["top5"] == 1.0 and found["samples"] == TEST_RECORDS
    wrong = np.flatnonzero(scores.argmax(1) != labels)
    assert sorted(h["sample"] for h in found["hardest"]) == wrong.tolist()
    sure = [h["confidence"] for h in found["hardest"]]
    assert sure == sorted(sure, reverse=True)


def test_an_image_is_tried_as_the_test_data_is(server: Server, case: Path) -> None:
    """The first test record, given as a file, has the scores that the test net gives it."""
    run = server.rows()["good"]["id"]
    _, scores, labels = reference(case)
    first = image(int(labels[0]), 5000)
    found = server.json(
        f"/api/runs/{run}/try?snapshot=net_iter_40.caffemodel", "POST",
        png(first[::-1].transpose(1, 2, 0).copy()),
    )  # fmt: skip
    powers = np.exp(scores[0] - scores[0].max())
    best = np.argsort(-powers)
    assert [label for label, _ in found["top"]] == best.tolist()
    assert [s for _, s in found["top"]] == pytest.approx(
        (powers / powers.sum())[best].tolist(), rel=1e-4
    )
    assert ["conv", [1, 6, 10, 10]] in found["blobs"]
    query = "snapshot=net_iter_40.caffemodel"
    shown = server.ask(f"/api/runs/{run}/blob?name=conv&{query}")[1]
    assert Image.open(io.BytesIO(shown)).size[0] > 20
    assert server.ask(f"/api/runs/{run}/blob?name=nothing&{query}")[0] == 422
    occluded = server.job(f"/api/runs/{run}/occlusion?{query}&target={best[0]}&image=1")
    assert occluded["score"] == pytest.approx(found["top"][0][1], rel=1e-4)


def test_records_are_shown_as_stored_and_as_seen(server: Server, case: Path) -> None:
    run = server.rows()["good"]["id"]
    where = "net=test&layer=data"
    assert server.json(f"/api/runs/{run}/data?{where}") == {
        "records": TEST_RECORDS, "shape": [3, 12, 12], "stored": [3, 14, 14],
    }  # fmt: skip
    surveyed = server.job(f"/api/runs/{run}/survey?{where}")
    labels = [(i * 7 + i // 3) % CLASSES for i in range(TEST_RECORDS)]
    counts = np.bincount(labels).tolist()
    assert surveyed["counts"] == [[i, n] for i, n in enumerate(counts)] and not surveyed["bad"]
    page = server.json(f"/api/runs/{run}/records?{where}&label=2&first=0")
    expected = [i for i, label in enumerate(labels) if label == 2]
    assert [r["record"] for r in page["records"]] == expected[:24]
    assert page["total"] == len(expected)
    stored = server.ask(f"/api/runs/{run}/record?{where}&record=4&seen=0")[1]
    shown = np.asarray(Image.open(io.BytesIO(stored)))
    times = len(shown) // 14
    np.testing.assert_array_equal(
        shown[::times, ::times], image(labels[4], 5004)[::-1].transpose(1, 2, 0)
    )
    seen = np.asarray(
        Image.open(io.BytesIO(server.ask(f"/api/runs/{run}/record?{where}&record=4&seen=1")[1]))
    )
    assert len(seen) == 12 * (160 // 12)


def test_bad_records_are_named(tmp_path: Path) -> None:
    with DatabaseWriter(tmp_path / "db") as writer:
        from pycaffe_fire.data.datum import encode_datum

        for i in range(6):
            content = encode_datum(image(0, i), i % 2) if i != 3 else b"\xff\xff"
            writer.put(b"%d" % i, content)
    browser = Browser(
        f'layer {{ name: "d" type: "Data" top: "x" top: "y" data_param {{ source: '
        f'"{tmp_path}/db" batch_size: 2 backend: LMDB }} }}',
        "d",
    )
    *_, last = browser.do_survey()
    assert last["result"]["bad"] == 1 and last["result"]["problems"][0][0] == 3
    page = browser.do_page(None, 0, 10)
    assert "error" in page["records"][3] and page["records"][2]["label"] == 0
    assert "boxes" not in page["records"][2]
    with pytest.raises(DataError):
        browser.do_image(3, True, 0)


ANNOTATED = """layer { name: "d" type: "AnnotatedData" top: "x" top: "y"
  data_param { source: "%s" batch_size: 1 backend: LMDB }
  transform_param { mirror: true crop_size: 40 resize_param { height: 48 width: 64 } } }"""


def test_boxes_are_those_of_the_records_and_of_the_net(tmp_path: Path) -> None:
    """As stored, and after the resizing, crop and mirror of a draw, as the layer's top has them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "SPLITS", {"train": 5})
        shapes.make_shapes(tmp_path)
    text = ANNOTATED % (tmp_path / "shapes_train_lmdb")
    browser = Browser(text, "d")
    stored = browser.do_page(None, 0, 5)["records"]
    for scene, record in zip(shapes.scenes("train", 0, 5), stored, strict=True):
        want = [[s.label, *(v / shapes.SIZE for v in s[1:])] for s in scene.shapes]
        np.testing.assert_allclose(record["boxes"], want, atol=1e-6)
    net = Net(schema.parse_text(text, schema.NetParameter()), cpu_backend(1), Context(seed=1))
    for draw in range(2):
        for record in browser.do_page(None, 0, 5, seen=True, draw=draw)["records"]:
            net.run_forward()
            net.context.step += 1
            rows = net.blobs["y"].data[0, 0]
            want = rows[rows[:, 0] == 0][:, [1, 3, 4, 5, 6]]
            np.testing.assert_allclose(np.reshape(record["boxes"], (-1, 5)), want, atol=1e-6)
    net.close()


# Nets of other kinds, and nets that are not trusted.

SEGMENTATION = """
layer { name: "data" type: "DummyData" top: "data" top: "label"
  dummy_data_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } shape { dim: 2 dim: 8 dim: 8 } } }
layer { name: "score" type: "Convolution" bottom: "data" top: "score"
  convolution_param { num_output: 3 kernel_size: 1 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "label" top: "loss" }
"""
DETECTION = """
layer { name: "data" type: "DummyData" top: "data" dummy_data_param { shape { dim: 1 dim: 3 dim: 8
  dim: 8 } } }
layer { name: "feature" type: "Pooling" bottom: "data" top: "feature"
  pooling_param { kernel_size: 4 stride: 4 } }
layer { name: "prior" type: "PriorBox" bottom: "feature" bottom: "data" top: "prior"
  prior_box_param { min_size: 4 variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 } }
layer { name: "loc" type: "Convolution" bottom: "feature" top: "loc"
  convolution_param { num_output: 4 kernel_size: 1 } }
layer { name: "loc_flat" type: "Flatten" bottom: "loc" top: "loc_flat" }
layer { name: "conf" type: "Convolution" bottom: "feature" top: "conf"
  convolution_param { num_output: 2 kernel_size: 1 bias_filler { type: "constant" value: 0.7 } } }
layer { name: "conf_flat" type: "Flatten" bottom: "conf" top: "conf_flat" }
layer { name: "boxes" type: "DetectionOutput" bottom: "loc_flat" bottom: "conf_flat" bottom: "prior"
  top: "boxes" detection_output_param { num_classes: 2 background_label_id: 0
  nms_param { nms_threshold: 0.4 } confidence_threshold: 0.1
  save_output_param { output_directory: "OUT" output_name_prefix: "x" output_format: "VOC" } } }
"""


def saved(folder: Path, text: str) -> str:
    """The weights that a net begins with, as a file."""
    param = harmless(schema.parse_text(text, schema.NetParameter()))
    net = Net(param, cpu_backend(1), Context())
    net.save(str(folder / "net.caffemodel"))
    return str(folder / "net.caffemodel")


def shown(pixels: np.ndarray) -> str:
    return base64.b64encode(png(pixels)).decode()


def test_a_segmentation_is_a_mask(tmp_path: Path) -> None:
    tried = Trial(SEGMENTATION, saved(tmp_path, SEGMENTATION), [3, 8, 8], None)
    found = tried.do_image(shown(np.zeros((8, 8, 3), np.uint8)))
    assert found["kind"] == "segmentation" and found["shares"] == [[0, 1.0]]
    assert Image.open(io.BytesIO(base64.b64decode(found["mask"]))).size == (8, 8)


def test_detections_are_boxes_and_nothing_is_written(tmp_path: Path) -> None:
    text = DETECTION.replace("OUT", str(tmp_path / "out"))
    tried = Trial(text, saved(tmp_path, text), [3, 8, 8], None)
    found = tried.do_image(shown(np.zeros((20, 30, 3), np.uint8)))
    assert found["kind"] == "detection" and found["size"] == [30, 20]
    label, confidence, *corners = found["boxes"][0]
    assert label == 1 and 0 < confidence <= 1 and len(corners) == 4
    assert not (tmp_path / "out").exists()


def test_nets_with_code_are_refused_and_writers_are_left_out() -> None:
    python = 'layer { name: "p" type: "Python" top: "x" python_param { module: "os" layer: "x" } }'
    with pytest.raises(NetError, match="runs no code"):
        harmless(schema.parse_text(python, schema.NetParameter()))
    writer = (
        'layer { name: "h" type: "HDF5Output" bottom: "x" hdf5_output_param { file_name: "f" } }'
    )
    assert not harmless(schema.parse_text(writer, schema.NetParameter())).layer


def test_large_images_are_refused_before_they_are_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trial, "MOST_PIXELS", 99)
    with pytest.raises(DataError, match="10 x 10 pixels"):
        trial.check_image(png(np.zeros((10, 10), np.uint8)))
    with pytest.raises(DataError, match="known kind"):
        trial.check_image(b"GIF89a")

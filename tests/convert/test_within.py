"""Within Caffe: forks' dialects to plain layers, pruning, names, 16 bits; weights by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pycaffe_fire import schema
from pycaffe_fire.cli.fire_convert import main
from pycaffe_fire.convert import Model, Settings, convert, read_model, weights
from pycaffe_fire.convert.fold import fold_batch_norm
from pycaffe_fire.convert.model import build
from pycaffe_fire.convert.prune import pruned, renamed
from pycaffe_fire.convert.unfork import plain_enough, to_bvlc
from pycaffe_fire.errors import ConvertError
from tests.convert.nets import model_of, parsed, save
from tests.convert.test_to_onnx import NET

INPUT = (
    'layer { name: "data" type: "Input" top: "data" '
    "input_param { shape { dim: 2 dim: 3 dim: 6 dim: 6 } } }\n"
)


def outputs(model: Model, seed: int = 0) -> list[Any]:
    net = build(model)
    rng = np.random.default_rng(seed)
    for name in net.inputs:
        net.blobs[name].data[...] = rng.normal(size=net.blobs[name].shape)
    net.run_forward()
    return [np.array(net.blobs[name].data) for name in net.outputs]


def same(one: Model, other: Model) -> None:
    for a, b in zip(outputs(one), outputs(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def types(model: Model) -> list[str]:
    return [layer.type for layer in model.param.layer]


def test_nvidia_s_batch_norm() -> None:
    """Five blobs: mean, variance, their weight, scale, bias."""
    text = INPUT + (
        'layer { name: "bn" type: "BatchNorm" bottom: "data" top: "y" '
        "batch_norm_param { scale_bias: true eps: 0.1 scale_filler { value: 1 } } }"
    )
    blobs = [np.array(v, np.float32) for v in (
        [1, 2, 3], [4, 5, 6], [2], [1, -1, 2], [0.5, 0, 1]
    )]  # fmt: skip
    model = to_bvlc(Model(parsed(text), {"bn": blobs}))
    assert types(model) == ["Input", "BatchNorm", "Scale"]
    x = np.random.default_rng(0).normal(size=(2, 3, 6, 6))
    mean, variance, _, scale, shift = (b.reshape(1, -1, 1, 1) for b in blobs)
    want = scale * (x - mean / 2) / np.sqrt(variance / 2 + 0.1) + shift
    np.testing.assert_allclose(outputs(model)[0], want, rtol=1e-4, atol=1e-5)
    assert not model.param.layer[1].batch_norm_param.HasField("scale_filler")


def test_intel_s_fused_relu() -> None:
    text = INPUT + (
        'layer { name: "c" type: "Convolution" bottom: "data" top: "y" engine: "MKLDNN" '
        "convolution_param { num_output: 2 kernel_size: 3 relu: true negative_slope: 0.5 "
        'engine: MKL2017 conv_algorithm: "winograd" } }'
    )
    weights_ = {"c": [np.ones((2, 3, 3, 3), np.float32), np.zeros(2, np.float32)]}
    model = to_bvlc(Model(parsed(text), weights_))
    assert types(model) == ["Input", "Convolution", "ReLU"]
    assert model.param.layer[2].relu_param.negative_slope == 0.5
    text = schema.to_text(model.param)
    assert "MKL" not in text and "relu: true" not in text and "conv_algorithm" not in text
    for field in ("engine", "conv_algorithm"):
        assert any(field in note and "dropped" in note for note in model.notes)
    plain = Model(parsed(INPUT + (
        'layer { name: "c" type: "Convolution" bottom: "data" top: "y" '
        "convolution_param { num_output: 2 kernel_size: 3 } }\n"
        'layer { name: "r" type: "ReLU" bottom: "y" top: "y" relu_param { negative_slope: 0.5 } }'
    )), weights_)  # fmt: skip
    same(model, plain)


def test_layers_of_forks_as_plain_ones() -> None:
    text = INPUT + (
        'layer { name: "d" type: "DepthwiseConvolution" bottom: "data" top: "d" '
        "convolution_param { num_output: 3 kernel_size: 3 group: 3 } }\n"
        'layer { name: "bn" type: "BN" bottom: "d" top: "bn" }\n'
        'layer { name: "r" type: "ReLU6" bottom: "bn" top: "r" }\n'
        'layer { name: "g" type: "Pooling" bottom: "r" top: "g" '
        "pooling_param { pool: AVE global_pooling: true } }\n"
        'layer { name: "a" type: "Axpy" bottom: "g" bottom: "r" bottom: "bn" top: "a" }'
    )
    model = model_of(text)
    model.weights["bn"][3] = np.abs(model.weights["bn"][3]) + 1
    plain = to_bvlc(model)
    assert types(plain) == [
        "Input", "Convolution", "BatchNorm", "Scale", "Clip", "Pooling", "Flatten", "Scale",
        "Eltwise",
    ]  # fmt: skip
    same(model, plain)
    strange = INPUT + 'layer { name: "p" type: "Permute" bottom: "data" top: "p" }'
    with pytest.raises(ConvertError, match=r'"p" \(Permute\)'):
        to_bvlc(model_of(strange))


def test_old_forms_and_folding_by_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prototxt, model_file = save(model_of(NET), tmp_path)
    out = [str(tmp_path / "out.prototxt"), str(tmp_path / "out.caffemodel")]
    flags = ["--upgrade", "--fold-bn", "--to", "bvlc"]
    assert main([str(prototxt), str(model_file), *out, *flags]) == 0
    assert 'BatchNorm "bn1" folded into "conv1"' in capsys.readouterr().out
    made = read_model(*out)
    assert "BatchNorm" not in types(made)
    same(model_of(NET), made)


def test_folding_deconvolutions_and_products() -> None:
    text = INPUT + (
        'layer { name: "d" type: "Deconvolution" bottom: "data" top: "d" '
        "convolution_param { num_output: 6 kernel_size: 2 group: 3 bias_term: false } }\n"
        'layer { name: "s" type: "Scale" bottom: "d" top: "d" scale_param { bias_term: true } }\n'
        'layer { name: "i" type: "InnerProduct" bottom: "d" top: "i" '
        "inner_product_param { num_output: 4 transpose: true } }\n"
        'layer { name: "b" type: "BatchNorm" bottom: "i" top: "b" }\n'
        'layer { name: "t" type: "Scale" bottom: "b" top: "t" }\n'
    )
    model = model_of(text)
    folded = fold_batch_norm(model)
    assert types(folded) == ["Input", "Deconvolution", "InnerProduct"]
    assert folded.param.layer[2].top[0] == "t"
    same(model, folded)


def test_pruning_and_renaming() -> None:
    model = model_of(NET)
    cut = pruned(model, ["pool1"])
    assert "InnerProduct" not in types(cut) and build(cut).outputs == ["pool1"]
    assert set(cut.weights) == {"conv1", "bn1", "scale1"}
    other = renamed(model, {"conv1": "first", "prob": "scores"})
    assert build(other).outputs == ["scores"] and "first" in other.weights
    same(model, other)
    with pytest.raises(ConvertError, match='no layer or blob "convv1".*did you mean "conv1"'):
        renamed(model, {"convv1": "x"})
    with pytest.raises(ConvertError, match='"ip" is the name of another layer'):
        renamed(model, {"conv1": "ip"})


def test_sixteen_bits_in_a_caffemodel(tmp_path: Path) -> None:
    prototxt, model_file = save(model_of(NET), tmp_path)
    out = tmp_path / "half.prototxt", tmp_path / "half.caffemodel"
    convert(prototxt, model_file, *out, settings=Settings(float16=True))
    assert out[1].stat().st_size < 0.7 * model_file.stat().st_size
    before, after = read_model(prototxt, model_file), read_model(*out)
    for name, blobs in before.weights.items():
        for a, b in zip(blobs, after.weights[name], strict=True):
            np.testing.assert_array_equal(a.astype(np.float16), b.astype(np.float16))
    full = tmp_path / "full.prototxt", tmp_path / "full.caffemodel"
    convert(*out, *full)  # and back to floats
    message = schema.NetParameter.FromString(full[1].read_bytes())
    assert not any(blob.HasField("raw_data") for layer in message.layer for blob in layer.blobs)


# Weights by name.


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".pt"])
def test_weights_there_and_back(tmp_path: Path, suffix: str) -> None:
    if suffix != ".npz":
        pytest.importorskip(
            {".pt": "torch", ".safetensors": "safetensors"}[suffix], reason="not installed"
        )
    prototxt, model_file = save(model_of(NET), tmp_path)
    named = tmp_path / f"weights{suffix}"
    convert(prototxt, model_file, named)
    found = weights.read(named)
    assert {"conv1.weight", "conv1.bias", "bn1.running_mean", "bn1.running_var"} <= set(found)
    model = model_of(NET)
    np.testing.assert_allclose(found["bn1.running_var"], model.weights["bn1"][1] / 4, rtol=1e-6)
    back = tmp_path / "back.caffemodel"
    assert main([str(named), str(back), "--into", str(prototxt)]) == 0
    same(model, read_model(prototxt, back))


def test_caffe_s_own_hdf5(tmp_path: Path) -> None:
    prototxt, model_file = save(model_of(NET), tmp_path)
    convert(prototxt, model_file, tmp_path / "weights.h5")
    same(model_of(NET), read_model(prototxt, tmp_path / "weights.h5"))


def test_weights_that_do_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prototxt, model_file = save(model_of(NET), tmp_path)
    named = weights.to_named(model_of(NET))
    named["conv1.weight"] = named["conv1.weight"][:2]
    del named["ip.bias"]
    named["extra.weight"] = np.zeros(3, np.float32)
    weights.write(tmp_path / "w.npz", named)
    out = tmp_path / "out.caffemodel"
    assert main([str(tmp_path / "w.npz"), str(out), "--into", str(prototxt)]) == 1
    err = capsys.readouterr().err
    assert '"conv1.weight" is [2, 3, 3, 3]' in err and 'no "ip.bias"' in err and not out.exists()
    assert main([str(tmp_path / "w.npz"), str(out)]) == 1
    assert "--into deploy.prototxt" in capsys.readouterr().err
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 nothing")
    assert main([str(tmp_path / "bad.npz"), str(out), "--into", str(prototxt)]) == 1
    assert "cannot be read as .npz" in capsys.readouterr().err and not out.exists()


def test_a_pickle_is_not_run(tmp_path: Path) -> None:
    """An .npz of objects would run code when it is unpickled."""
    np.savez(tmp_path / "w.npz", weight=np.array([object()], dtype=object))
    with pytest.raises(ConvertError, match="could run code: it is not read"):
        weights.read(tmp_path / "w.npz")


def test_plain_models_stay_as_they_are() -> None:
    model = model_of(NET)
    again = plain_enough(model)
    assert again.param == model.param and again.notes == []

"""Every field of the schema has one verdict, and what verdicts.txt says of it is so."""

from __future__ import annotations

import ast
import inspect
import logging
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.errors import LayerError, NetError, SolverError
from pycaffe_fire.layers import LAYERS, Layer
from pycaffe_fire.schema import verdicts
from pycaffe_fire.schema.messages import FIELDS, Field
from tests.net.net_cases import IMAGES, LABELS, inputs, layer
from tests.solver.solver_cases import SGD, body, make, rows_layer, write_rows

ROOT = Path(__file__).parents[2]
TABLE = verdicts.verdicts()
ALL = {
    f"{message.removeprefix('caffe.')}.{field}": facts
    for message, fields in FIELDS.items()
    for field, facts in fields.items()
}


def test_every_field_has_exactly_one_verdict() -> None:
    listed = Counter(field for field, _ in verdicts.read_verdicts())
    assert sorted(set(ALL) - set(listed)) == [], "give them a verdict in verdicts.txt"
    assert sorted(set(listed) - set(ALL)) == [], "these are no fields of the schema"
    assert [field for field, times in listed.items() if times > 1] == []


def test_verdicts_are_of_the_three_kinds_and_say_something() -> None:
    for field, (kind, text) in TABLE.items():
        assert kind in (verdicts.HONOURED, verdicts.NO_EFFECT, verdicts.REFUSED), field
        assert len(text) > 10, field


@cache
def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_tests_that_are_named_exist() -> None:
    named = {text for kind, text in TABLE.values() if kind == verdicts.HONOURED}
    for name in sorted(named):
        file, _, function = name.partition("::")
        assert function.startswith("test_") and function in functions(ROOT / file), name


def test_honoured_fields_are_given_somewhere_in_the_tests() -> None:
    """In a test, an example, a reference net or the prototxt of a reference case."""
    tests = ROOT / "tests"
    texts = [path.read_text() for end in ("py", "prototxt") for path in tests.rglob(f"*.{end}")]
    texts += [path.read_text() for path in (ROOT / "examples").glob("*.py")]  # the tests run them
    for path in tests.rglob("*.npz"):
        with np.load(path) as archive:
            texts += [str(archive["prototxt"])] if "prototxt" in archive else []
    words = set(re.findall(r"\w+", "\n".join(texts)))
    honoured = [field for field, verdict in TABLE.items() if verdict.kind == verdicts.HONOURED]
    assert [field for field in honoured if field.rpartition(".")[2] not in words] == []


def other_value(field: Field, descriptor: Any) -> Any:
    """A value that a field does not have by itself."""
    default = None if field.repeated else descriptor.default_value
    if field.kind == "string":
        return "something"
    if field.kind == "bool":
        return not default
    if field.kind == "enum":
        numbers = [value.number for value in descriptor.enum_type.values]
        return next(number for number in numbers if number != default)
    return (default or 0) + 3


def give(message: Any, name: str) -> None:
    field = FIELDS[message.DESCRIPTOR.full_name][name]
    descriptor = message.DESCRIPTOR.fields_by_name[name]
    if field.kind == "message":
        inner = getattr(message, name)
        inner = inner.add() if field.repeated else inner
        inner.SetInParent()
        for needed in (f for f in FIELDS[field.type_name].values() if f.required):
            give(inner, needed.name)
        return
    value = other_value(field, descriptor)
    getattr(message, name).append(value) if field.repeated else setattr(message, name, value)


def of_kind(message: str, kind: str) -> list[str]:
    return [
        field.partition(".")[2]
        for field, verdict in TABLE.items()
        if field.rpartition(".")[0] == message and verdict.kind == kind
    ]


@pytest.mark.parametrize("field", of_kind("LayerParameter", verdicts.REFUSED))
def test_a_layer_s_refused_field_is_named_with_the_way_out(field: str) -> None:
    net = schema.parse_text(inputs() + layer("ReLU", "r", "data"), schema.NetParameter())
    give(net.layer[1], field)
    way_out = TABLE[f"LayerParameter.{field}"].text
    with pytest.raises(LayerError) as caught:
        caffe.Net(net, caffe.TRAIN)
    assert str(caught.value) == f'layer "r" (ReLU): {field} is not supported; {way_out}'


PARAMETERS = sorted(
    (holder, field)
    for holder, facts in FIELDS["caffe.LayerParameter"].items()
    if facts.kind == "message" and TABLE[f"LayerParameter.{holder}"].kind == verdicts.HONOURED
    for field in of_kind(facts.type_name.removeprefix("caffe."), verdicts.REFUSED)
)


@pytest.mark.parametrize("holder, field", PARAMETERS)
def test_refused_fields_of_its_parameters_too(holder: str, field: str) -> None:
    message = schema.LayerParameter()
    inner = getattr(message, holder)
    inner = inner.add() if FIELDS["caffe.LayerParameter"][holder].repeated else inner
    give(inner, field)
    assert any(s.startswith(f"{holder}.{field} is not supported; ") for s in (
        verdicts.refusals(message)))  # fmt: skip


@pytest.mark.parametrize("field", of_kind("SolverParameter", verdicts.REFUSED))
def test_a_solver_s_refused_field_is_named(field: str, tmp_path: Path) -> None:
    param = schema.parse_text(SGD, schema.SolverParameter())
    give(param, field)
    net = rows_layer(write_rows(tmp_path), 4) + body()
    with pytest.raises(SolverError, match=f"the solver's {field} is not supported; "):
        make(net, schema.to_text(param))


@pytest.mark.parametrize("field", of_kind("NetParameter", verdicts.REFUSED))
def test_a_net_s_refused_field_is_named(field: str) -> None:
    net = schema.parse_text(inputs(), schema.NetParameter())
    give(net, field)
    with pytest.raises(NetError, match=f"{field} is not supported; "):
        caffe.Net(net, caffe.TRAIN)


def test_defaults_are_not_refused() -> None:
    text = layer("Pooling", "p", "data", None, "pooling_param { kernel_size: 1 axis: 1 }")
    caffe.Net(schema.parse_text(inputs() + text, schema.NetParameter()), caffe.TRAIN)
    with pytest.raises(LayerError, match="pooling_param.axis is not"):
        text = text.replace("axis: 1", "axis: 2")
        caffe.Net(schema.parse_text(inputs() + text, schema.NetParameter()), caffe.TRAIN)


def test_fields_without_effect_are_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(verdicts, "_logged", set())
    caplog.set_level(logging.INFO, "pycaffe_fire")
    relus = "".join(
        layer("ReLU", f"r{i}", "data", "data", "relu_param { engine: MKL2017 }") for i in range(3)
    )
    net = caffe.Net(schema.parse_text(inputs() + relus, schema.NetParameter()), caffe.TRAIN)
    net.forward(data=IMAGES, label=LABELS)
    assert caplog.text.count("relu_param.engine has no effect here: ops choose their own") == 1


def test_a_user_s_own_layer_may_read_any_field(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LAYERS, "_items", dict(LAYERS._items))

    @caffe.register_layer("Mirror")
    class Mirror(Layer):
        def reshape(self, bottom: Any, top: Any) -> None:
            top[0].reshape_like(bottom[0])
            assert self.param.flip_param.flip_height

    text = inputs() + layer("Mirror", "m", "data", None, "flip_param { flip_height: true }")
    caffe.Net(schema.parse_text(text, schema.NetParameter()), caffe.TRAIN)


def test_parameters_of_another_type_are_warned_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(verdicts, "_unread", set())
    text = inputs() + "".join(
        layer("ReLU", f"r{i}", "data", "data", "lrn_param { local_size: 3 } relu_param { }")
        for i in range(2)
    )
    caffe.Net(schema.parse_text(text, schema.NetParameter()), caffe.TRAIN)
    assert caplog.text.count("ReLU layers do not look at lrn_param; it has no effect") == 1
    assert "relu_param" not in caplog.text


@pytest.mark.parametrize("kind", sorted(LAYERS.registered()))
def test_types_say_which_parameters_they_read(kind: str) -> None:
    """What a class takes from its LayerParameter is its own field or one that it names."""
    made = LAYERS[kind]
    methods = [function for _, function in inspect.getmembers(made, inspect.isfunction)]
    source = "\n".join(inspect.getsource(method) for method in methods)
    taken = set(re.findall(r"self\.param\.(\w+_param)\b", source))
    assert taken <= {made.field_of(kind), *made.also_reads}

"""proto/caffe.proto, the shipped descriptor and Caffe's schema are one and the same."""

from __future__ import annotations

import ast
import importlib
import json
import keyword
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from proto_stub import stub_text

from pycaffe_fire import schema
from pycaffe_fire.schema import messages

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "schema"
CAFFE = json.loads((GOLDEN / "caffe_schema.json").read_text())
FORKS = json.loads((GOLDEN / "forks_fields.json").read_text())
FILE = descriptor_pb2.FileDescriptorProto.FromString(
    (ROOT / "pycaffe_fire" / "schema" / "caffe.desc").read_bytes()
)
TYPES = dict(messages.walk("caffe", FILE.message_type))
OURS = range(20000, 21000)


def fields(message: str) -> dict[str, Any]:
    return {field.name: field for field in TYPES[f"caffe.{message}"].field}


def kind(field: Any) -> str:
    if field.type_name:
        return str(field.type_name).removeprefix(".caffe.")
    return descriptor_pb2.FieldDescriptorProto.Type.Name(field.type)[5:].lower()


def label(field: Any) -> str:
    return descriptor_pb2.FieldDescriptorProto.Label.Name(field.label)[6:].lower()


def same_default(field: Any, wanted: str) -> bool:
    if kind(field) == "float" and wanted:
        return struct.pack("f", float(field.default_value)) == struct.pack("f", float(wanted))
    return str(field.default_value) == wanted


def test_descriptor_is_the_compiled_proto() -> None:
    pytest.importorskip("grpc_tools", reason="the extra `dev` has grpcio-tools")
    tool = importlib.import_module("compile_proto")
    compiled = descriptor_pb2.FileDescriptorProto.FromString(tool.compile_proto())
    assert compiled == FILE, "run python tools/compile_proto.py"


def test_stub_is_written_from_the_descriptor() -> None:
    stub = ROOT / "pycaffe_fire" / "schema" / "proto.pyi"
    assert stub_text(FILE) == stub.read_text(), "run python tools/compile_proto.py"


def test_stub_names_what_there_is() -> None:
    """Every class, field and enum value of the stub exists at run time, and none is missing."""
    tree = ast.parse((ROOT / "pycaffe_fire" / "schema" / "proto.pyi").read_text())
    stub = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    assert set(stub) == {m.name for m in FILE.message_type}
    for name, node in stub.items():
        made = getattr(schema, name)()
        names = [
            ast.unparse(item.target) if isinstance(item, ast.AnnAssign) else item.name
            for item in node.body
            if isinstance(item, ast.AnnAssign | ast.FunctionDef | ast.ClassDef)
        ]
        assert all(hasattr(made, inner) for inner in names)
        assert {f for f in fields(name) if not keyword.iskeyword(f)} <= set(names)


@pytest.mark.parametrize("message", CAFFE["messages"])
def test_every_fact_of_caffe_holds(message: str) -> None:
    facts, have = CAFFE["messages"][message], fields(message)
    for fact in facts["fields"]:
        field = have[fact["name"]]
        assert field.number == fact["number"], fact
        assert (kind(field), label(field)) == (fact["type"], fact["label"]), fact
        assert field.options.packed == fact.get("packed", False), fact
        assert same_default(field, fact.get("default", "")), fact
    for enum, values in facts.get("enums", {}).items():
        known = messages.ENUMS[f"caffe.{message}.{enum}"]
        assert {name: known[name] for name in values} == values


@pytest.mark.parametrize("fork", FORKS)
def test_every_field_of_the_forks_has_a_place(fork: str) -> None:
    for message, facts in FORKS[fork]["messages"].items():
        for name, (_, fact_label, fact_kind) in facts["fields"].items():
            field = fields(message)[name]
            assert (label(field), kind(field)) == (fact_label, fact_kind), (message, name)
        for enum, values in facts["enums"].items():
            assert values.keys() <= messages.ENUMS[f"caffe.{message}.{enum}"].keys()
    for enum, values in FORKS[fork]["enums"].items():
        known = messages.ENUMS[f"caffe.{enum}"]
        assert {name: known[name] for name in values} == values
        assert all(number in OURS for name, number in known.items() if name not in values)


def test_moved_numbers_are_in_our_range_and_say_so() -> None:
    """Whatever has another number here than at home is commented with the one it has at home."""
    text = (ROOT / "proto" / "caffe.proto").read_text()
    for fork, title in (("nvcaffe", "NVIDIA"), ("intelcaffe", "Intel")):
        other = FORKS["intelcaffe" if fork == "nvcaffe" else "nvcaffe"]["messages"]
        for message, facts in FORKS[fork]["messages"].items():
            body = text.split(f"\nmessage {message} {{")[1].split("\n}\n")[0]
            for name, (number, _, _) in facts["fields"].items():
                ours = fields(message)[name].number
                if ours == number:
                    continue
                assert ours in OURS or name in other[message]["fields"], (message, name)
                assert re.search(rf" {name} = {ours}\b.*// .*{title}: {number}\b", body), name


def test_our_range_is_ours() -> None:
    for facts in CAFFE["messages"].values():
        assert not any(fact["number"] in OURS for fact in facts["fields"])
    assert fields("SolverState")["fire_extra"].number == OURS.start


def test_attributes() -> None:
    assert (schema.TRAIN, schema.TEST) == (0, 1)
    assert schema.Phase.Name(1) == "TEST"
    net = schema.NetParameter(name="n")
    net.layer.add(type="Pooling").pooling_param.pool = schema.PoolingParameter.AVE
    assert schema.NetParameter.FromString(net.SerializeToString()) == net
    with pytest.raises(AttributeError, match="NoSuchParameter"):
        _ = getattr(schema, "NoSuch" + "Parameter")


def test_all_is_there() -> None:
    assert all(hasattr(schema, name) for name in schema.__all__)


def test_another_caffe_may_live_in_the_default_pool() -> None:
    other = descriptor_pb2.FileDescriptorProto(name="caffe.proto", package="caffe")
    other.message_type.add(name="NetParameter")
    descriptor_pool.Default().AddSerializedFile(other.SerializeToString())
    found = descriptor_pool.Default().FindMessageTypeByName("caffe.NetParameter")
    assert found is not schema.NetParameter.DESCRIPTOR
    assert schema.NetParameter(name="still ours").name == "still ours"

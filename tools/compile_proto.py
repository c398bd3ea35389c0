"""Compile proto/caffe.proto to pycaffe_fire/schema/caffe.desc, the descriptor the package ships,
and to proto.pyi beside it, the types of its messages.

    python tools/compile_proto.py

Needs grpcio-tools (the `dev` extra). Run it after every change to the .proto and commit all three.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from google.protobuf import descriptor_pb2
from grpc_tools import protoc
from proto_stub import stub_text

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto" / "caffe.proto"
DESCRIPTOR = ROOT / "pycaffe_fire" / "schema" / "caffe.desc"
STUB = DESCRIPTOR.with_name("proto.pyi")


def compile_proto(proto: Path = PROTO) -> bytes:
    """The serialized FileDescriptorProto of one .proto file, the same bytes for the same text."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set.desc"
        args = ["protoc", f"-I{proto.parent}", f"--descriptor_set_out={out}", proto.name]
        if protoc.main(args) != 0:
            raise SystemExit(f"{proto} does not compile")
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    clean = descriptor_pb2.FileDescriptorProto()
    clean.CopyFrom(files[0])
    for message in clean.message_type:
        clear_json_names(message)
    return clean.SerializeToString(deterministic=True)


def clear_json_names(message: descriptor_pb2.DescriptorProto) -> None:
    """JSON names follow from the field names and some compilers leave them out."""
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        clear_json_names(nested)


def main() -> int:
    data = compile_proto()
    DESCRIPTOR.write_bytes(data)
    STUB.write_text(stub_text(descriptor_pb2.FileDescriptorProto.FromString(data)))
    for path in (DESCRIPTOR, STUB):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

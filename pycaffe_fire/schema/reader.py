"""Reads prototxts into messages; every complaint names file, line, column and the way out."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

from google.protobuf.message import Message

from ..errors import PrototxtError
from ..installation import find_model_file
from ..registry import did_you_mean
from .files import describe, is_text, read_head
from .messages import ENUMS, FIELDS, Field
from .proto import LayerParameter, NetParameter, SolverParameter, V1LayerParameter
from .tokens import Source, Token, unquote
from .upgrade import upgrade_net, upgrade_solver

M = TypeVar("M", bound=Message)

_LONGEST_NUMBER = 20_000  # characters; longer ones take time, and none means anything
_MAX_FLOAT = float.fromhex("0x1.fffffep127")
# Messages whose fields end up in one another, and what to say then.
_CONFUSED = {
    "caffe.NetParameter": ("caffe.SolverParameter", "this looks like a solver prototxt"),
    "caffe.SolverParameter": ("caffe.NetParameter", "this looks like a net prototxt"),
    "caffe.V1LayerParameter": ("caffe.LayerParameter", '"layers" is the old form; write "layer"'),
    "caffe.LayerParameter": ("caffe.V1LayerParameter", 'only the old "layers" form has it'),
}
_INTEGERS = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
}
_BOOLS = {"true": True, "True": True, "t": True, "1": True} | {
    "false": False, "False": False, "f": False, "0": False
}  # fmt: skip


def read_net(path: str | os.PathLike[str]) -> NetParameter:
    """The NetParameter in a prototxt, upgraded to the newest form."""
    return upgrade_net(_read(path, NetParameter()), os.fspath(path))


def read_solver(path: str | os.PathLike[str]) -> SolverParameter:
    """The SolverParameter in a prototxt, upgraded to the newest form."""
    return upgrade_solver(_read(path, SolverParameter()), os.fspath(path))


def read_all(path: str | os.PathLike[str], message: Any) -> list[str]:
    """Fills the message with what can be read and returns a sentence for everything that cannot."""
    parser = _Parser(Source(read_text(path), os.fspath(path)), recover=True)
    try:
        parser.parse(message)
        upgrade = upgrade_net if isinstance(message, NetParameter) else upgrade_solver
        if not parser.problems:
            message.CopyFrom(upgrade(message, os.fspath(path)))
    except PrototxtError as error:  # beyond recovery
        parser.problems.append(str(error))
    return parser.problems


def parse_text(text: str, message: M, where: str = "<string>") -> M:
    """Fills `message` from text and returns it, nets and solvers upgraded."""
    _Parser(Source(text, where)).parse(message)
    upgraded: Message = message
    if isinstance(message, NetParameter):
        upgraded = upgrade_net(message, where)
    elif isinstance(message, SolverParameter):
        upgraded = upgrade_solver(message, where)
    return cast(M, upgraded)


def layer_lines(text: str) -> dict[str, list[int]]:
    """The lines on which layers of each name start; TRAIN and TEST may both have a "data"."""
    source = Source(text, "<string>")
    lines: dict[str, list[int]] = {}
    line = at = 0
    for start, block in _Parser(source).parse(NetParameter()):
        if isinstance(block, LayerParameter | V1LayerParameter):
            name = block.name
            if isinstance(block, V1LayerParameter) and block.HasField("layer"):
                name = block.layer.name
            line, at = line + source.text.count("\n", at, start), start
            lines.setdefault(name, []).append(line + 1)
    return lines


def locate(path: str | os.PathLike[str], layer_name: str, nth: int = 0) -> int | None:
    """The line of a file on which the nth layer of this name starts, for use in errors."""
    lines = layer_lines(read_text(path)).get(layer_name, [])
    return lines[nth] if nth < len(lines) else None


def read_text(path: str | os.PathLike[str]) -> str:
    """A prototxt file's text. Bytes that are not UTF-8 are kept: they are harmless in comments.

    A path of models/ that is not there means the model that came with the package.
    """
    path = find_model_file(path)
    head = read_head(path, PrototxtError, "prototxt")
    if head and not is_text(head):
        raise PrototxtError(f"{os.fspath(path)}: not a prototxt: looks like {describe(head)}")
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return file.read()


def _read(path: str | os.PathLike[str], message: M) -> M:
    text = read_text(path)
    _Parser(Source(text, os.fspath(path))).parse(message)
    if not message.ByteSize():
        kind = message.DESCRIPTOR.name
        raise PrototxtError(f"{os.fspath(path)}:1:1: the file is empty; expected a {kind}")
    return message


class _Parser:
    """Recursive descent over the tokens, led by the fields of the message being filled. No message
    of the schema can hold itself, so the depth is bounded by the schema."""

    def __init__(self, source: Source, recover: bool = False) -> None:
        self.source, self.recover = source, recover
        self.problems: list[str] = []
        self._go_to(0)
        self.top_blocks: list[tuple[int, Message]] = []
        self._readers: dict[str, Callable[[Field], Any]] = {
            **dict.fromkeys(_INTEGERS, self._integer),
            "float": self._float,
            "double": self._float,
            "bool": self._bool,
            "string": self._string,
            "bytes": self._bytes,
            "enum": self._enum,
        }

    def _go_to(self, at: int) -> None:
        self._tokens = self.source.tokens(at)
        self.token = next(self._tokens)  # the next one to be taken

    def parse(self, message: Message) -> list[tuple[int, Message]]:
        """Fills the message; returns its direct sub-messages with their places."""
        self._fields(message, None, 0)
        return self.top_blocks

    def _error(self, token: Token, what: str) -> PrototxtError:
        return self.source.error(token.start, what)

    def _take(self) -> Token:
        token = self.token
        if token.kind != "end":
            self.token = next(self._tokens)
        return token

    def _skip(self, marks: str) -> bool:
        """Steps over the next token if it is one of these marks."""
        found = self.token.kind == "mark" and self.token.text in marks
        if found:
            self._take()
        return found

    def _fields(self, message: Message, opener: Token | None, depth: int) -> None:
        """Fields up to the mark that closes `opener`, or to the end of the text."""
        kind = message.DESCRIPTOR.full_name
        fields = FIELDS[kind]
        closer = {"{": "}", "<": ">"}[opener.text] if opener else ""
        seen: dict[str, Token] = {}
        while True:
            token = self._take()
            if token.kind == "name":
                after = self.token.start
                try:
                    self._field(message, self._lookup(token, kind), token, seen, depth)
                except PrototxtError as error:
                    if not self.recover:
                        raise
                    self.problems.append(str(error))
                    self._go_to(after)
                    self._skip_value()
                self._skip(",;")
            elif opener and token.text == closer and token.kind == "mark":
                break
            elif token.kind == "end":
                if opener is None:
                    break
                raise self._error(opener, f'this "{opener.text}" is never closed by "{closer}"')
            elif token.text in ("}", ">") and opener is None:
                raise self._error(token, f'"{token}" closes nothing; every block is closed already')
            else:
                raise self._error(token, f"expected a field name, got {token}")
        for field in fields.values():
            if field.required and not message.HasField(field.name):
                place = opener or self.token
                raise self._error(place, f'{_short(kind)} must have a field "{field.name}"')

    def _skip_value(self) -> None:
        """Steps over the value of a field that could not be read."""
        self._skip(":")
        depth = 0
        while self.token.kind != "end":
            token = self._take()
            if token.kind == "mark":
                depth += (token.text in "{<[") - (token.text in "}>]")
            if depth <= 0 and token.text != "-":
                break

    def _lookup(self, token: Token, kind: str) -> Field:
        field = FIELDS[kind].get(token.text)
        if field is None:
            hint = did_you_mean(token.text, list(FIELDS[kind]))
            other, advice = _CONFUSED.get(kind, ("", ""))
            if token.text in FIELDS.get(other, {}):
                hint = f"; {advice}"
            raise self._error(token, f'{_short(kind)} has no field "{token}"{hint}')
        return field

    def _field(
        self, message: Message, field: Field, name: Token, seen: dict[str, Token], depth: int
    ) -> None:
        if not field.repeated:
            if name.text in seen:
                line = self.source.line_of(seen[name.text].start)
                raise self._error(name, f'"{name}" is given twice, first on line {line}; keep one')
            seen[name.text] = name
        colon = self._skip(":")
        if field.kind == "message":
            one = self._block
        elif colon:
            one = self._scalar
        else:
            raise self._error(self.token, f'expected ":" after "{name}"')
        if not (field.repeated and self._skip("[")):
            one(message, field, name, depth)
            return
        if self._skip("]"):
            return
        one(message, field, name, depth)
        while self._skip(","):
            one(message, field, name, depth)
        if not self._skip("]"):
            token = self.token
            raise self._error(token, f'expected "," or "]" in the list of "{name}", got {token}')

    def _block(self, message: Message, field: Field, name: Token, depth: int) -> None:
        opener = self._take()
        if opener.kind != "mark" or opener.text not in "{<":
            raise self._error(opener, f'"{name}" is a block: expected "{{", got {opener}')
        value = getattr(message, field.name)
        if field.repeated:
            value = value.add()
        else:
            value.SetInParent()
        if depth == 0:
            self.top_blocks.append((name.start, value))
        self._fields(value, opener, depth + 1)

    def _scalar(self, message: Message, field: Field, name: Token, depth: int) -> None:
        value = self._readers[field.kind](field)
        if field.repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)

    def _number(self, field: Field, what: str) -> tuple[str, Token]:
        """The next number or bare word with its sign, and the token to blame."""
        first = self._take()
        if first.kind == "mark" and first.text == "-":
            token = self._take()
            sign = "-"
        else:
            token, sign = first, ""
        if token.kind not in ("number", "name") or len(token.text) > _LONGEST_NUMBER:
            raise self._error(first, f'"{field.name}" is {what}, got {sign}{token}')
        return sign + token.text, first

    def _integer(self, field: Field) -> int:
        text, token = self._number(field, "an integer")
        digits = text.lstrip("-")
        try:
            octal = digits.isdigit() and digits[0] == "0" and len(digits) > 1
            value = int(text, 8 if octal else 16 if digits[:2] in ("0x", "0X") else 10)
        except ValueError:
            raise self._error(token, f'"{field.name}" is an integer, got {text[:40]}') from None
        low, high = _INTEGERS[field.kind]
        if not low <= value <= high:
            raise self._error(
                token, f'"{field.name}" must be within {low}..{high}, got {text[:40]}'
            )
        return value

    def _float(self, field: Field) -> float:
        text, token = self._number(field, "a number")
        try:
            # Python's float() takes the words inf, infinity and nan, but knows no hex and no "f".
            is_hex = "x" in text.lower()
            value = float(int(text, 16)) if is_hex else float(_without_suffix(text))
        except (ValueError, OverflowError):
            raise self._error(token, f'"{field.name}" is a number, got {text[:40]}') from None
        limit = _MAX_FLOAT if field.kind == "float" else sys.float_info.max
        if abs(value) > limit and "inf" not in text.lower():
            raise self._error(token, f'"{field.name}" is too large for a {field.kind}: {text[:40]}')
        return value

    def _bool(self, field: Field) -> bool:
        token = self._take()
        if token.text not in _BOOLS or token.kind not in ("name", "number"):
            raise self._error(token, f'"{field.name}" is true or false, got {token}')
        return _BOOLS[token.text]

    def _bytes(self, field: Field) -> bytes:
        token = self._take()
        if token.kind != "string":
            what = f'"{field.name}" is a string, got {token}'
            if token.kind in ("name", "number"):
                what += f'; strings need quotes: {field.name}: "{token}"'
            raise self._error(token, what)
        parts = [unquote(token.text)]
        while self.token.kind == "string":
            parts.append(unquote(self._take().text))
        return b"".join(parts)

    def _string(self, field: Field) -> str:
        token = self.token
        try:
            text = self._bytes(field).decode("utf-8")
        except UnicodeDecodeError:
            what = f'"{field.name}" is not valid UTF-8; save the file as UTF-8'
            raise self._error(token, what) from None
        if "\0" in text:  # no name of a file, layer or blob has one
            raise self._error(token, f'"{field.name}" holds a zero character')
        return text

    def _enum(self, field: Field) -> int:
        values = ENUMS[field.type_name]
        text, token = self._enum_word()
        if text in values:
            return values[text]
        digits = text.removeprefix("-")
        if digits.isdecimal() and len(digits) < 20 and int(text) in values.values():
            return int(text)
        hint = did_you_mean(text.strip("\"'"), list(values))
        what = f'"{field.name}" has no value {text[:40]}{hint}; known: {", ".join(values)}'
        raise self._error(token, what)

    def _enum_word(self) -> tuple[str, Token]:
        token = self._take()
        if token.kind == "mark" and token.text == "-":
            return "-" + self._take().text, token
        return token.text, token


def _short(kind: str) -> str:
    return kind.removeprefix("caffe.")


def _without_suffix(text: str) -> str:
    """A number without C's trailing f (1.0f); words such as inf stay."""
    return text[:-1] if text[-1] in "fF" and text[-2:-1] in set("0123456789.") else text

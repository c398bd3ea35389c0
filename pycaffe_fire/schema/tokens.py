"""The words of a prototxt, each with its place in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ..errors import PrototxtError

# No pattern here repeats a group: the engine would remember every repetition.
_BLANKS = re.compile(r"\s*(?:\#[^\n]*)?", re.ASCII)  # and one comment
_PATTERN = re.compile(
    r"""(?P<name>[A-Za-z_]\w*)
      |(?P<number>(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]?)(?![\w.]))
      |(?P<string>["'])
      |(?P<mark>[{}<>\[\]:;,-])
      |(?P<bad>[\w.]+|.)""",
    re.VERBOSE | re.ASCII,
)
_IN_STRING = {quote: re.compile(rf"[^{quote}\\\n]*") for quote in "\"'"}
_BARE = re.compile(r"(\w+)\s*:\s*([\w./\\-]*)$")  # a field and what stands after it without quotes
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|(.))")
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_ENCODING_ERRORS = {True: "surrogatepass", False: "surrogateescape"}  # written as \\u, or as is
_SHOWN = 120


class Token(NamedTuple):
    kind: str  # "name", "number", "string", "mark" or "end"
    text: str
    start: int

    def __str__(self) -> str:
        return "the end of the text" if self.kind == "end" else self.text[:_SHOWN]


class Source:
    """A prototxt's text with the name it goes by in errors."""

    def __init__(self, text: str, where: str) -> None:
        text = text.removeprefix("\ufeff")
        self.text = text.replace("\r\n", "\n").replace("\r", "\n")
        self.where = where

    def tokens(self, at: int = 0) -> Iterator[Token]:
        """The text from a place on, token by token, the last of kind "end"."""
        size = len(self.text)
        while True:
            while (match := _BLANKS.match(self.text, at)) and match.end() > at:
                at = match.end()
            match = _PATTERN.match(self.text, at) if at < size else None
            if match is None:
                yield Token("end", "", at)
                return
            kind, start = match.lastgroup or "bad", at
            if kind == "bad":
                raise self.error(start, self._complaint(match[kind], start))
            at = self._string_end(start) if kind == "string" else match.end()
            yield Token(kind, self.text[start:at], start)

    def _string_end(self, start: int) -> int:
        quote = self.text[start]
        inside, at = _IN_STRING[quote], start + 1
        while match := inside.match(self.text, at):
            at = match.end()
            if self.text[at : at + 1] == quote:
                return at + 1
            if self.text[at : at + 1] != "\\" or self.text[at + 1 : at + 2] in ("", "\n"):
                break
            at += 2
        raise self.error(start, self._complaint(quote, start))

    def _complaint(self, text: str, start: int) -> str:
        line = self.text.rfind("\n", 0, start) + 1
        bare = _BARE.search(self.text[max(line, start - _SHOWN) : start])
        if bare and (bare[2] or text[0] not in "\"'0123456789."):
            return f'"{bare[1]}" lacks a quote before its value; strings need quotes on both sides'
        if text[0] in "\"'":
            return f"this string has no closing {text[0]} on its line"
        if text[0].isdigit() or (text[0] == "." and len(text) > 1):
            return f'"{text[:_SHOWN]}" is not a number'
        return f'unexpected character "{text[0]}"'

    def line_of(self, start: int) -> int:
        """The line number, from 1, of a place in the text."""
        return self.text.count("\n", 0, start) + 1

    def error(self, start: int, what: str) -> PrototxtError:
        """An error that points at a place: file:line:column: what; the line itself."""
        begin = self.text.rfind("\n", 0, start) + 1
        line = self.text[begin:].split("\n", 1)[0]
        # A net may be one endless line: show the part around the place.
        skip = max(0, start - begin - _SHOWN // 2) if len(line) > _SHOWN else 0
        shown = line[skip : skip + _SHOWN].strip() or "(blank line)"
        place = f"{self.where}:{self.line_of(start)}:{start - begin + 1}"
        return PrototxtError(f"{place}: {what}; in: {shown}")


def unquote(text: str) -> bytes:
    """The bytes that a quoted string stands for."""
    body = text[1:-1]
    if "\\" not in body:
        return body.encode("utf-8", "surrogateescape")
    out, at = bytearray(), 0
    for match in _ESCAPE.finditer(body):
        out += body[at : match.start()].encode("utf-8", "surrogateescape")
        octal, hexadecimal, unicode, letter = match.groups()
        if octal or hexadecimal:
            out.append(int(octal, 8) & 255 if octal else int(hexadecimal, 16))
        else:
            char = chr(int(unicode, 16)) if unicode else _LETTERS.get(letter, letter)
            out += char.encode("utf-8", _ENCODING_ERRORS[bool(unicode)])
        at = match.end()
    out += body[at:].encode("utf-8", "surrogateescape")
    return bytes(out)

"""Mutators: bytes flipped, cut, copied and grown; numbers and words of texts exchanged."""

from __future__ import annotations

import random
import re

_WORD = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|[A-Za-z_]\w*|\"[^\"\n]*\"|[{}\[\]:,]")
ODD_NUMBERS = [
    b"0", b"-1", b"1", b"2", b"3", b"255", b"256", b"65535", b"2147483647", b"-2147483648",
    b"4294967295", b"4294967296", b"9223372036854775807", b"1e38", b"-1e38", b"1e-45", b"nan",
    b"inf", b"-inf", b"0.5", b"1e400", b"00", b"0x10", b"3000", b"100000",
]  # fmt: skip
ODD_WORDS = [
    b'""', b'"x"', b'"\\0"', b'"a\\000b"', b'"../../x"', b'"/"', b"true", b"false", b"null", b"{}",
    b"[]", b"\xff", b"\0", b'"data"', b"MAX", b"TRAIN", b"TEST", b"#", b"# number",
]  # fmt: skip
ODD_BYTES = [0, 1, 2, 127, 128, 255, 8, 10, 18, 34, 50, 53, 0x0A, 0x20]


def mutated(data: bytes, others: list[bytes], rng: random.Random, text: bool) -> bytes:
    """Another input like `data`, in a few places not."""
    for _ in range(rng.choice([1, 1, 1, 2, 3, 5, 12])):
        data = (
            _mutated_text(data, rng) if text and rng.random() < 0.8 else _bytes(data, others, rng)
        )
    return data


def _mutated_text(data: bytes, rng: random.Random) -> bytes:
    words = list(_WORD.finditer(data))
    if not words:
        return data
    word = rng.choice(words)
    kind = rng.randrange(6)
    if kind == 0:  # a line twice, gone, or elsewhere
        lines = data.split(b"\n")
        line = rng.randrange(len(lines))
        moved = lines[line]
        if rng.random() < 0.5:
            del lines[line]
        lines[(at := rng.randrange(len(lines) + 1)) : at] = [moved] * rng.choice([0, 1, 1, 2, 50])
        return b"\n".join(lines)
    if kind == 1:
        new = rng.choice(words)[0]
    elif word[0][:1].isdigit() or word[0][:1] == b"-" or kind == 2:
        new = rng.choice(ODD_NUMBERS)
    else:
        new = rng.choice(ODD_WORDS)
    return data[: word.start()] + new + data[word.end() :]


def _bytes(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    changed = bytearray(data)
    at = rng.randrange(len(changed) + 1)
    kind = rng.randrange(8)
    if kind == 0 and at < len(changed):
        changed[at] ^= 1 << rng.randrange(8)
    elif kind == 1 and at < len(changed):
        changed[at] = rng.choice(ODD_BYTES)
    elif kind == 2:
        size = rng.choice([1, 2, 4, 8])
        number = rng.choice([0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1, 3])
        packed = (number % (1 << 8 * size)).to_bytes(size, rng.choice(["little", "big"]))
        changed[at : at + size] = packed
    elif kind == 3:
        del changed[at : at + rng.choice([1, 2, 8, 100, len(changed)])]
    elif kind == 4:
        changed[at:at] = rng.randbytes(rng.choice([1, 2, 8, 100]))
    elif kind == 5:
        start = rng.randrange(len(changed) + 1)
        changed[at:at] = changed[start : start + rng.choice([1, 8, 64, 512])]
    elif kind == 6:
        other = rng.choice(others)
        start = rng.randrange(len(other) + 1)
        changed[at : at + 64] = other[start : start + rng.choice([8, 64, 512])]
    else:
        changed[at:] = changed[at : at + rng.randrange(len(changed) - at + 1)]
    return bytes(changed)

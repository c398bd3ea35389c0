"""A process that loads mutated inputs of one kind, one after the other, under a cap on memory.

It prints a line before each case and one for each finding, so that whoever reads them knows which
case ended or stopped the process.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import traceback
from pathlib import Path

from pycaffe_fire.errors import FireError

from .kinds import KINDS, Kind, load_quietly
from .mutate import mutated

ROOM = 256 << 20  # bytes besides four times the file
ROOM_FOR_NETS = 2 << 30


class Cases:
    """The inputs of a kind by number: the same seed gives the same inputs."""

    def __init__(self, name: str, folder: Path, seed: int) -> None:
        self.kind: Kind = KINDS[name]
        self._name, self._folder, self._seed = name, folder, seed
        folder.mkdir(parents=True, exist_ok=True)
        self._seeds = self.kind.seeds(folder)

    def make(self, number: int) -> tuple[str, bytes]:
        """Name and contents of an input."""
        rng = random.Random(f"{self._name}/{self._seed}/{number}")
        name = rng.choice(sorted(self._seeds))
        others = list(self._seeds.values())
        return name, mutated(self._seeds[name], others, rng, self.kind.text)

    def put(self, name: str, data: bytes) -> Path:
        """Write an input where its kind has it."""
        place = self.kind.place
        if place and (self._folder / place).is_dir():
            for seed, good in self._seeds.items():  # the other files of the database are whole
                (self._folder / place / seed).write_bytes(good)
            path = self._folder / place / name
        else:
            path = self._folder / (place or f"input_{self._name}")
        path.write_bytes(data)
        return path


def limit_memory(size: int) -> None:
    """From now on this process may take `size` bytes more than it has."""
    status = Path("/proc/self/status").read_text()
    has = 1024 * int(next(line for line in status.splitlines() if "VmData" in line).split()[1])
    resource.setrlimit(resource.RLIMIT_DATA, (has + size, resource.RLIM_INFINITY))


def load(kind: Kind, path: Path) -> str:
    """What is wrong with how an input was taken: nothing, or a traceback."""
    room = ROOM_FOR_NETS if kind.needs_memory else 4 * path.stat().st_size + ROOM
    limit_memory(room)
    try:
        kind.load(path)
    except FireError:
        pass
    except MemoryError:
        if not kind.needs_memory:
            return traceback.format_exc()
    except Exception:
        return traceback.format_exc()
    return ""


def main() -> None:
    name, folder, seed, first, count = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:6])
    load_quietly()
    cases = Cases(name, folder, seed)
    for number in range(first, first + count):
        print(json.dumps({"case": number}), flush=True)
        what = load(cases.kind, cases.put(*cases.make(number)))
        if what:
            print(json.dumps({"finding": number, "what": what}), flush=True)
    print(json.dumps({"done": first + count}), flush=True)


if __name__ == "__main__":
    main()

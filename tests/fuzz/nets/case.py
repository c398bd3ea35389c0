"""A case: the layers of a net, its phase, and the actions that run it; stored as a prototxt.

The first line is a comment that holds everything besides the net:

    # phase TRAIN; actions [["fwd", 17], ["bwd", 4]]; threads 1; seen: what was found
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace

Action = tuple[str, int]  # its name, and the seed of everything random in it
_HEADER = re.compile(
    r"# phase (?P<phase>\w+); actions (?P<actions>\[.*?\]);"
    r"(?: threads (?P<threads>\d+);)?(?: (?P<shared>shared gradients);)? seen:"
)
_BLOB = r'(?:bottom|top): "([^"]*)"'


@dataclass(frozen=True)
class LayerText:
    """One layer: its ends, and its parameters as text."""

    name: str
    type: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    params: str = ""

    def __str__(self) -> str:
        ends = [f'bottom: "{b}"' for b in self.bottoms] + [f'top: "{t}"' for t in self.tops]
        return f'layer {{ name: "{self.name}" type: "{self.type}" {" ".join(ends)} {self.params} }}'

    @classmethod
    def parse(cls, line: str) -> LayerText:
        match = re.match(r'layer \{ name: "([^"]*)" type: "([^"]*)" ?(.*) \}\s*$', line)
        assert match, f"not a layer on one line: {line}"
        name, kind, rest = match.groups()
        ends = re.match(rf"(?:{_BLOB} ?)*", rest)
        assert ends
        given = ends.group(0)
        return cls(
            name, kind, tuple(re.findall(r'bottom: "([^"]*)"', given)),
            tuple(re.findall(r'top: "([^"]*)"', given)), rest[len(given) :].strip(),
        )  # fmt: skip


@dataclass(frozen=True)
class Case:
    """What is run; `shared` nets reuse the memory of gradients, as a solver's do."""

    layers: tuple[LayerText, ...]
    phase: str = "TRAIN"
    actions: tuple[Action, ...] = (("fwd", 1), ("bwd", 2))
    threads: int = 1
    shared: bool = False
    head: tuple[str, ...] = field(default=("force_backward: true",))

    @property
    def net(self) -> str:
        return "\n".join([*self.head, *map(str, self.layers)]) + "\n"

    def text(self, seen: str = "") -> str:
        """The case as a file that `parse` reads."""
        actions = json.dumps([list(action) for action in self.actions])
        shared = " shared gradients;" if self.shared else ""
        first = " ".join(seen.split())[:300]
        return (
            f"# phase {self.phase}; actions {actions}; threads {self.threads};{shared} "
            f"seen: {first}\n{self.net}"
        )

    @classmethod
    def parse(cls, text: str) -> Case:
        match = _HEADER.match(text)
        assert match, "the first line must be a comment with phase and actions"
        lines = [line for line in text.splitlines()[1:] if line.strip()]
        return cls(
            layers=tuple(LayerText.parse(line) for line in lines if line.startswith("layer")),
            phase=match["phase"],
            actions=tuple((name, seed) for name, seed in json.loads(match["actions"])),
            threads=int(match["threads"] or 1),
            shared=bool(match["shared"]),
            head=tuple(line for line in lines if not line.startswith("layer")),
        )

    def with_layers(self, layers: list[LayerText]) -> Case:
        return replace(self, layers=tuple(layers))

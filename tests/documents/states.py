"""The pictures of states, drawn from tables of moves: of a choice, a round, a batch and an experiment."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from privateer_client import states as choices
from privateer_core import experiment_status as experiments
from privateer_server.rounds import states as rounds
from privateer_shuffler import states as batches

_BOX: Final = 156, 56
_GAP: Final = 7
"""How far an arrow is from the middle between two states, so that the arrow back has room beside it."""
Arrow = tuple[str, int, int]
"""How an arrow goes, and where its words stand."""


@dataclass(frozen=True)
class Picture:
    """A picture of states, whose arrows are straight unless they have a path of their own."""

    file: str
    title: str
    moves: Mapping[tuple[str, str], str]
    places: dict[str, tuple[int, int]]
    size: tuple[int, int]
    paths: dict[tuple[str, str], Arrow] = field(default_factory=dict)

    @property
    def edges(self) -> dict[tuple[str, str], list[str]]:
        """The events that lead from one state to another, or leave it."""
        events_by_move: dict[tuple[str, str], list[str]] = {}
        for (state, event), after in self.moves.items():
            events_by_move.setdefault((str(state), str(after)), []).append(str(event))
        return events_by_move

    def arrow(self, pair: tuple[str, str]) -> Arrow:
        """How the arrow between two states goes."""
        if pair in self.paths:
            return self.paths[pair]
        (x, y), (to_x, to_y) = (self.places[state] for state in pair)
        length = math.hypot(to_x - x, to_y - y)
        along = (to_x - x) / length, (to_y - y) / length
        is_back = (pair[1], pair[0]) in self.edges
        aside = (-along[1] * _GAP, along[0] * _GAP) if is_back else (0.0, 0.0)
        start = [place + side for place, side in zip((x, y), aside, strict=True)]  # the box is drawn over it
        reach = min(
            (half + math.copysign(1.0, part) * side) / abs(part) if part else math.inf
            for half, part, side in zip((78, 28), along, aside, strict=True)
        )
        ends = zip((to_x, to_y), along, aside, strict=True)
        end = [place - part * (reach + 1) + side for place, part, side in ends]
        middle = [(a + b) / 2 + 2 * side for a, b, side in zip((x, y), (to_x, to_y), aside, strict=True)]
        path = f"M{start[0]:.0f} {start[1]:.0f} L{end[0]:.0f} {end[1]:.0f}"
        return path, round(middle[0]), round(middle[1]) + 4

    def to_svg(self) -> str:
        """Draw the picture as SVG."""
        width, height = self.size
        edges = self.edges
        moves = [pair for pair in edges if pair[0] != pair[1]]
        arrows = [_arrow(self.arrow(pair)[0]) for pair in moves]
        arrows += [_words(*self.arrow(pair)[1:], edges[pair]) for pair in moves]
        boxes = [_box(at, state, edges.get((state, state), [])) for state, at in self.places.items()]
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        head += ' font-family="system-ui, sans-serif" font-size="14" text-anchor="middle" fill="#1d2b2a"'
        head += f' role="img" aria-label="{self.title}">'
        tip = '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        tip = f'<defs>{tip}<path d="M0 0 L8 4 L0 8 z" fill="#3d6b66"/></marker></defs>'
        ground = f'<rect width="{width}" height="{height}" fill="#fbfbf9"/>'
        return "\n".join([head, tip, ground, *arrows, *boxes, "</svg>"]) + "\n"


def _box(at: tuple[int, int], state: str, stays: list[str]) -> str:
    (x, y), (width, height) = at, _BOX
    place = f'x="{x - width // 2}" y="{y - height // 2}" width="{width}" height="{height}" rx="6"'
    words = f'<text x="{x}" y="{y - 3}" font-weight="600">{state}</text>'
    for line, events in enumerate((stays[:2], stays[2:])):
        text = ", ".join(events) if line else f"stays: {', '.join(events)}"
        at_y = y + 15 - 4 * (len(stays) > 2) + 12 * line
        words += f'<text x="{x}" y="{at_y}" font-size="11" fill="#444">{text}</text>' if events else ""
    return f'<rect {place} fill="#e6f2f1" stroke="#3d6b66" stroke-width="1.2"/>\n{words}'


def _arrow(path: str) -> str:
    return f'<path d="{path}" stroke="#3d6b66" stroke-width="1.3" fill="none" marker-end="url(#tip)"/>'


def _words(x: int, y: int, events: list[str]) -> str:
    halo = 'paint-order="stroke" stroke="#fbfbf9" stroke-width="4"'
    return f'<text x="{x}" y="{y}" font-size="12" {halo}>{", ".join(events)}</text>'


PICTURES: Final = (
    Picture(
        "choice-states",
        "The states of a choice",
        choices.NEXT,
        {
            "offered": (95, 200), "chosen": (335, 130), "waiting": (335, 270), "due": (575, 200),
            "delivered": (815, 200), "given-up": (575, 390), "closed": (95, 390),
        },
        (905, 435),
        {
            ("offered", "chosen"): ("M175 190 L255 146", 232, 182),
            ("chosen", "offered"): ("M255 122 C195 118 140 132 115 170", 205, 112),
            ("offered", "waiting"): ("M175 210 L255 254", 190, 245),
            ("waiting", "offered"): ("M255 278 C195 282 140 268 115 230", 150, 284),
            ("offered", "due"): ("M175 200 L494 200", 335, 194),
            ("chosen", "due"): ("M415 146 L495 190", 470, 160),
            ("waiting", "due"): ("M415 254 L495 210", 485, 246),
            ("due", "offered"): ("M575 170 C565 50 150 40 98 170", 335, 70),
            ("due", "delivered"): ("M655 200 L734 200", 694, 192),
            ("due", "given-up"): ("M575 230 L575 360", 602, 310),
            ("due", "closed"): ("M530 230 C470 390 330 376 175 380", 470, 318),
            ("delivered", "offered"): ("M815 170 C810 -20 90 -30 85 170", 450, 20),
            ("given-up", "closed"): ("M495 400 L175 400", 335, 416),
            ("given-up", "offered"): ("M495 378 C380 350 240 350 140 230", 300, 340),
            ("offered", "closed"): ("M85 230 L85 360", 52, 300),
            ("closed", "offered"): ("M105 360 L105 230", 130, 320),
        },
    ),
    Picture(
        "round-states",
        "The states of a round",
        rounds.NEXT,
        {"open": (95, 60), "closed": (415, 60), "given-up": (415, 230), "learned": (735, 60), "missed": (735, 230)},
        (830, 280),
    ),
    Picture(
        "batch-states",
        "The states of a batch",
        batches.NEXT,
        {
            "elsewhere": (95, 60), "filling": (735, 60), "delivering": (735, 220), "over": (415, 230),
            "deleted": (415, 360),
        },
        (890, 420),
        {
            ("filling", "delivering"): ("M728 88 L728 191", 706, 145),
            ("delivering", "filling"): ("M742 192 L742 89", 806, 145),
        },
    ),
    Picture(
        "experiment-states",
        "Where an experiment stands",
        experiments.NEXT,
        {
            "open": (95, 60), "paused": (415, 60), "stopped": (735, 200), "draining": (415, 230),
            "finished": (415, 370), "failed": (95, 370),
        },
        (830, 420),
        {("open", "stopped"): ("M95 60 L656 183", 520, 157)},
    ),
)  # fmt: skip


def documents() -> dict[Path, str]:
    """The pictures."""
    return {Path(f"docs/pictures/{picture.file}.svg"): picture.to_svg() for picture in PICTURES}

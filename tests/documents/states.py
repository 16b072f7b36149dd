"""The picture of the states of a choice, drawn from the client's table."""

from pathlib import Path
from typing import Final

from privateer_client.states import NEXT, ChoiceState

PICTURE: Final = Path("docs/pictures/choice-states.svg")
_SIZE: Final = 156, 56
_AT: Final = {
    "offered": (95, 200), "chosen": (335, 130), "waiting": (335, 270), "due": (575, 200), "delivered": (815, 200),
    "given-up": (575, 390), "closed": (95, 390),
}  # fmt: skip
_PATHS: Final = {
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
}
"""How an arrow goes, and where its words stand."""


def edges() -> dict[tuple[str, str], list[str]]:
    """The events that lead from one state to another, or leave it."""
    found: dict[tuple[str, str], list[str]] = {}
    for (state, event), after in NEXT.items():
        found.setdefault((state.value, after.value), []).append(event.value)
    return found


def _box(state: str, stays: list[str]) -> str:
    (x, y), (width, height) = _AT[state], _SIZE
    place = f'x="{x - width // 2}" y="{y - height // 2}" width="{width}" height="{height}" rx="6"'
    words = f'<text x="{x}" y="{y - 3}" font-weight="600">{state}</text>'
    words += f'<text x="{x}" y="{y + 15}" font-size="11" fill="#444">stays: {", ".join(stays)}</text>' if stays else ""
    return f'<rect {place} fill="#e6f2f1" stroke="#3d6b66" stroke-width="1.2"/>\n{words}'


def _arrow(path: str) -> str:
    return f'<path d="{path}" stroke="#3d6b66" stroke-width="1.3" fill="none" marker-end="url(#tip)"/>'


def _words(x: int, y: int, events: list[str]) -> str:
    halo = 'paint-order="stroke" stroke="#fbfbf9" stroke-width="4"'
    return f'<text x="{x}" y="{y}" font-size="12" {halo}>{", ".join(events)}</text>'


def documents() -> dict[Path, str]:
    """The picture."""
    events = edges()
    moves = [pair for pair in events if pair[0] != pair[1]]
    arrows = [_arrow(_PATHS[pair][0]) for pair in moves]
    arrows += [_words(*_PATHS[pair][1:], events[pair]) for pair in moves]
    boxes = [_box(state.value, events.get((state.value, state.value), [])) for state in ChoiceState]
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 905 435" font-family="system-ui, sans-serif"'
    head += ' font-size="14" text-anchor="middle" fill="#1d2b2a" role="img" aria-label="The states of a choice">'
    tip = '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    tip = f'<defs>{tip}<path d="M0 0 L8 4 L0 8 z" fill="#3d6b66"/></marker></defs>'
    parts = [head, tip, '<rect width="905" height="435" fill="#fbfbf9"/>', *arrows, *boxes, "</svg>"]
    return {PICTURE: "\n".join(parts) + "\n"}

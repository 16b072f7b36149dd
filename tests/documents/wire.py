"""Vectors of the wire format, in two sets: all of them, and the few of each family that are in git.

A family is what a file has of one algorithm or one answer, or else one of its lists. Of a family with more than ten,
ten are chosen: those that tests name, then greedily what is refused or accepted in a way that none before it has shown,
then what has most names and values that none before it has.
"""

import json
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from tests.documents import exchange, exports, families, logs, offline, shares, tokens, uploads, vectors

FEW: Final = Path("docs/wire")
ALL: Final = FEW / "all"
MODULES: Final[Sequence[ModuleType]] = (vectors, families, uploads, exports, offline, logs, tokens, shares, exchange)
COUNT: Final = 10
PEOPLE: Final = 4
_NAMED: Final = {
    "partition under central",
    "partition under shuffle, of rare events",
    "trial of everybody under local",
    "trial under local, questions",
    "linear under none",
    "additive under shuffle",
    "additive under none",
    "additive under central, of rare events",
    "additive under shuffle, of rare events",
    "additive",
    "linear under shuffle, of several messages",
    "partition, four reports, under none: as it is",
    "sparse under central",
    "trial of adjusted rewards under local",
    "trial under none that has learned a slope and learns another",
    "gain of partition under shuffle",
    "phased",
    "phased in a box",
    "convex, one point",
}
"""Vectors that tests of the client in JavaScript look up, and models of few words that others would leave out."""


def documents() -> dict[Path, str]:
    """The text of each file of both sets."""
    contents = {name: content for module in MODULES for name, content in module.files().items()}
    return render(contents, ALL) | render({name: select_few(content) for name, content in contents.items()}, FEW)


def render(contents: dict[str, Any], folder: Path) -> dict[Path, str]:
    """The texts of files in a folder."""
    return {folder / f"{name}.json": text(content) + "\n" for name, content in contents.items()}


def select_few(content: Any) -> Any:
    """What is in git of a file: of each family at most ten vectors, and of each vector four people."""
    if isinstance(content, dict):
        return {key: _select_vectors(value) if isinstance(value, list) else value for key, value in content.items()}
    return _select_vectors(content)


def _select_vectors(vectors: list[Any]) -> list[Any]:
    if not all(isinstance(vector, dict) for vector in vectors):
        return vectors
    chosen, traits = list[int](), set[Hashable]()
    for family in dict.fromkeys(map(_family, vectors)):
        chosen += _pick_ten({i: vector for i, vector in enumerate(vectors) if _family(vector) == family}, traits)
    return [_shorten_people(vectors[at]) for at in sorted(chosen)]


def _family(vector: dict[str, Any]) -> str:
    """Return the algorithm of terms, or the answer to an upload; further vectors of a list are one family."""
    if "status" in vector:
        return str(vector.get("type"))
    is_of_terms = "publication" in vector and "refused" in vector
    return str(vector["name"]).replace(",", " ").split()[0] if is_of_terms else ""


def _pick_ten(family: dict[int, Any], traits: set[Hashable]) -> list[int]:
    """Return the places of the vectors that add most to ``seen``, and add their traits to it."""
    candidates, chosen = dict(family), list[int]()
    while candidates and len(chosen) < COUNT:
        best = max(candidates, key=lambda at: (_worth(candidates[at], traits), -at))
        vector = candidates.pop(best)
        chosen.append(best)
        traits |= {*_traits(vector), verdict(vector)}
    return chosen


def _worth(vector: dict[str, Any], traits: set[Hashable]) -> tuple[int, ...]:
    """Rank a vector by how much it shows that no vector before has."""
    return int(vector.get("name") in _NAMED), len({verdict(vector)} - traits), len({*_traits(vector)} - traits)


def verdict(vector: dict[str, Any]) -> tuple[str, ...]:
    """Whether a vector is accepted, or the reason of its refusal."""
    return tuple(str(vector.get(key)) for key in ("refused", "field", "holds", "status"))


def _traits(vector: dict[str, Any]) -> Iterator[Hashable]:
    """Words of the name, and values that are no structures."""
    yield from str(vector.get("name", "")).replace(",", " ").replace(":", " ").split()
    yield from ((key, value) for key, value in vector.items() if isinstance(value, str | int | float | None))


def _shorten_people(vector: dict[str, Any]) -> dict[str, Any]:
    people = vector.get("people")
    return vector | {"people": people[:PEOPLE]} if isinstance(people, list) else vector


def text(value: Any, indent: str = "\n") -> str:
    """Render JSON with a line for each entry, and a single line for an entry that fits or has no nested values."""
    is_object, line = isinstance(value, dict), json.dumps(value)
    entries = list(value.values()) if is_object else value
    if not isinstance(entries, list) or len(line) < 100 or not any(isinstance(entry, dict | list) for entry in entries):
        return line
    deeper = indent + " "
    lines = [text(entry, deeper) for entry in entries]
    if is_object:
        lines = [f"{json.dumps(key)}: {line}" for key, line in zip(value, lines, strict=True)]
    opened, closed = "{}" if is_object else "[]"
    return f"{opened}{deeper}{f',{deeper}'.join(lines)}{indent}{closed}"

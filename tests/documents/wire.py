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

from tests.documents import exports, families, logs, offline, tokens, uploads, vectors

FEW: Final = Path("docs/wire")
ALL: Final = FEW / "all"
MODULES: Final[Sequence[ModuleType]] = (vectors, families, uploads, exports, offline, logs, tokens)
COUNT: Final = 10
PEOPLE: Final = 4
_NAMED: Final = {
    "partition under central",
    "partition under shuffle, of rare events",
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
    "convex, one point",
}
"""Vectors that tests of the client in JavaScript look up, and models of few words that others would leave out."""


def documents() -> dict[Path, str]:
    """The text of each file of both sets."""
    made = {name: found for module in MODULES for name, found in module.files().items()}
    return written(made, ALL) | written({name: few(found) for name, found in made.items()}, FEW)


def written(made: dict[str, Any], folder: Path) -> dict[Path, str]:
    """The texts of files in a folder."""
    return {folder / f"{name}.json": text(found) + "\n" for name, found in made.items()}


def few(found: Any) -> Any:
    """What is in git of a file: of each family at most ten vectors, and of each vector four people."""
    if isinstance(found, dict):
        return {key: _chosen(one) if isinstance(one, list) else one for key, one in found.items()}
    return _chosen(found)


def _chosen(vectors: list[Any]) -> list[Any]:
    if not all(isinstance(vector, dict) for vector in vectors):
        return vectors
    taken, shown = list[int](), set[Hashable]()
    for family in dict.fromkeys(map(_family, vectors)):
        taken += _ten({at: vector for at, vector in enumerate(vectors) if _family(vector) == family}, shown)
    return [_shortened(vectors[at]) for at in sorted(taken)]


def _family(vector: dict[str, Any]) -> str:
    """The algorithm of terms, and the answer to an upload; other vectors of a list are one family."""
    if "status" in vector:
        return str(vector.get("type"))
    is_of_terms = "publication" in vector and "refused" in vector
    return str(vector["name"]).replace(",", " ").split()[0] if is_of_terms else ""


def _ten(family: dict[int, Any], shown: set[Hashable]) -> list[int]:
    """The places of the vectors that add most to what others have ``shown``, to which theirs is added."""
    left, taken = dict(family), list[int]()
    while left and len(taken) < COUNT:
        best = max(left, key=lambda at: (_worth(left[at], shown), -at))
        vector = left.pop(best)
        taken.append(best)
        shown |= {*_traits(vector), verdict(vector)}
    return taken


def _worth(vector: dict[str, Any], shown: set[Hashable]) -> tuple[int, ...]:
    """What a vector shows that none of those before has."""
    return int(vector.get("name") in _NAMED), len({verdict(vector)} - shown), len({*_traits(vector)} - shown)


def verdict(vector: dict[str, Any]) -> tuple[str, ...]:
    """Whether a vector is accepted, or what is said of it."""
    return tuple(str(vector.get(key)) for key in ("refused", "field", "holds", "status"))


def _traits(vector: dict[str, Any]) -> Iterator[Hashable]:
    """Words of the name, and values that are no structures."""
    yield from str(vector.get("name", "")).replace(",", " ").replace(":", " ").split()
    yield from ((key, value) for key, value in vector.items() if isinstance(value, str | int | float | None))


def _shortened(vector: dict[str, Any]) -> dict[str, Any]:
    people = vector.get("people")
    return vector | {"people": people[:PEOPLE]} if isinstance(people, list) else vector


def text(value: Any, indent: str = "\n") -> str:
    """JSON with a line for each entry, and one for what fits there or has no lists or objects in it."""
    is_object, line = isinstance(value, dict), json.dumps(value)
    entries = list(value.values()) if is_object else value
    if not isinstance(entries, list) or len(line) < 100 or not any(isinstance(one, dict | list) for one in entries):
        return line
    deeper = indent + " "
    lines = [text(one, deeper) for one in entries]
    if is_object:
        lines = [f"{json.dumps(key)}: {line}" for key, line in zip(value, lines, strict=True)]
    opened, closed = "{}" if is_object else "[]"
    return f"{opened}{deeper}{f',{deeper}'.join(lines)}{indent}{closed}"

"""Types are prepared before threads share them, and no module decodes to an unprepared type."""

import ast
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from privateer_core.prepared_types import prepared

ROOT = Path(__file__).parents[3]
ROLES = ("shared", "client", "shuffler", "issuer", "server")


class Pair(msgspec.Struct):
    """A type that no module decodes."""

    left: int
    right: "Pair | None" = None


def test_threads_get_the_prepared_type() -> None:
    body = msgspec.msgpack.encode(Pair(1, Pair(2)))
    assert msgspec.msgpack.decode(body, type=prepared(Pair)) == Pair(1, Pair(2))
    with ThreadPoolExecutor(8) as threads:
        kinds = list(threads.map(lambda _: prepared(Pair), range(64)))
    assert all(kind is Pair for kind in kinds)


def test_a_type_that_cannot_be_decoded_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(TypeError):
            prepared(int | str | dict[int, Pair] | Pair)


def unprepared(source: str) -> Iterator[int]:
    """Yield the lines that have msgspec decode or convert to a class that it may not know."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("msgspec."):
            kinds = [word.value for word in node.keywords if word.arg == "type"]
            kinds += node.args[1:2] if ast.unparse(node.func) == "msgspec.convert" else []
            if any(not ast.unparse(kind).startswith(("prepared(", "dict[str, ", "list[bytes]")) for kind in kinds):
                yield node.lineno


def test_every_decoded_type_is_prepared() -> None:
    sources = [path for role in ROLES for path in (ROOT / role).rglob("*.py")]
    assert len(sources) > 100
    assert {str(path): lines for path in sources if (lines := list(unprepared(path.read_text())))} == {}


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("msgspec.json.decode(body, type=Label)", [1]),
        ("msgspec.convert(value, Event)", [1]),
        ("msgspec.json.decode(body, type=prepared(Label))", []),
        ("msgspec.msgpack.decode(body)", []),
    ],
)
def test_a_planted_unprepared_type_is_found(source: str, lines: list[int]) -> None:
    assert list(unprepared(source)) == lines

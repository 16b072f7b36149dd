"""Specs that cost a parser far more than their sender: refused before they are parsed, off the event loop."""

import subprocess
import sys
from functools import cache

import pytest

from privateer_core.errors import SpecError
from privateer_core.spec.sections import TOML_BYTES_MAX, toml_tables

HOSTILE = {
    "dotted key": ".".join("a" * 20_000) + " = 1",
    "dotted table": "[" + ".".join("a" * 20_000) + "]",
    "spaced and quoted": " . ".join(['"a"', "'a'"] * 5_000) + " = 1",
    "inline table": "x = {" + ".".join("a" * 20_000) + " = 1}",
    "nested arrays": "x = " + "[" * 100_000,
    "nested tables": "x = " + "{a=" * 50_000,
    "digits": "x = " + "9" * 100_000,
    "too large": "x = 1\n" * TOML_BYTES_MAX,
    "one word": "a" * (TOML_BYTES_MAX - 1),
    "quotes": '"' * (TOML_BYTES_MAX - 1),
    "spaces": "a" + " " * (TOML_BYTES_MAX - 2) + "b",
}
HARMLESS = "a.b.c.d = 1\n" + "x = [" + "0.25, " * 40_000 + "]"
_PARSE = """
import resource, sys
from privateer_core.spec.sections import toml_tables
text = sys.stdin.read()
before = resource.getrusage(resource.RUSAGE_SELF)
try:
    toml_tables(text)
except Exception as error:
    print(type(error).__name__, end=" ")
after = resource.getrusage(resource.RUSAGE_SELF)
print(after.ru_utime - before.ru_utime, after.ru_maxrss - before.ru_maxrss)
"""


@cache
def cost(text: str) -> tuple[list[str], float, float]:
    """What parsing raises, and takes: seconds of a processor, and MiB, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", _PARSE], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    *raised, seconds, kilobytes = done.stdout.split()
    return raised, float(seconds), float(kilobytes) / 1024


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_spec_costs_no_more_than_a_harmless_one(name: str) -> None:
    raised, seconds, memory = cost(HOSTILE[name])
    _, usual, _ = cost(HARMLESS)
    assert raised == ["SpecError"]
    assert seconds < 5 * max(usual, 0.05)
    assert memory < 64


def test_harmless_specs_are_read() -> None:
    assert toml_tables('a.b."c d" = 0.5\n[x]\ny = [1.5, 2.5]\nz = "a.b.c.d.e.f"')["x"]["y"] == [1.5, 2.5]
    assert len(toml_tables(HARMLESS)["x"]) == 40_000


def test_names_say_what_is_wrong_with_them() -> None:
    with pytest.raises(SpecError, match="a name of more than 16 parts"):
        toml_tables(".".join("a" * 18) + " = 1")

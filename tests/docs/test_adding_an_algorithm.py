"""The page about new algorithms is short, and everything that it names is there."""

import re
from pathlib import Path

import pytest

from privateer_core.algorithms import ALGORITHMS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "adding-an-algorithm.md").read_text()
PROSE, EXAMPLE = TEXT.split("## The example\n")
PATHS = sorted(set(re.findall(r"`((?:shared|server|lab|tests|docs|examples)/[\w/.<>-]*)`", PROSE)))


def test_the_page_is_short() -> None:
    assert len(PROSE.splitlines()) <= 60


@pytest.mark.parametrize("named", PATHS)
def test_what_the_page_names_is_there(named: str) -> None:
    tried = [
        named.replace("<name>.py", ending) for name in ALGORITHMS for ending in (f"{name}.py", f"{name}/__init__.py")
    ]
    assert any((ROOT / path).exists() for path in tried)


def test_the_example_is_printed_as_it_is_tested() -> None:
    printed = re.findall(r"^```python\n(.*?)^```$", EXAMPLE, flags=re.DOTALL | re.MULTILINE)
    tested = [(ROOT / "tests" / "support" / "ucb" / name).read_text() for name in ("public.py", "learner.py")]
    assert printed == tested
    assert sum(len(text.splitlines()) for text in tested) <= 130

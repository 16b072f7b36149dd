"""Sections of docstrings stand at what users import; inside, a sentence says why, and a field's line explains it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTIONS = ("\nAttributes\n---", "\nRaises\n---")
IMPORTED_BY_USERS = (
    "client/privateer_client/{arm,client,delivery,offline,openfeature,session}.py",
    "client/privateer_client/ledger/ledger.py",
    "lab/privateer_lab/{analysis/ab_test_analysis,drafting/spec_draft,drafting/written_draft,environments/environment}.py",
    "lab/privateer_lab/{baselines,notebook}/",
    "server/privateer_server/algorithms/rounds_learner.py",
    "shared/privateer_core/{accounting,answer,mechanisms,policies}/",
    "shared/privateer_core/{algorithms/__init__,errors,privacy/terms_verification,spec/arms}.py",
)


def expanded(pattern: str) -> Iterator[str]:
    before, brace, rest = pattern.partition("{")
    choices, _, after = rest.partition("}")
    yield from (before + word + after for word in choices.split(",")) if brace else (pattern,)


PREFIXES = tuple(path for pattern in IMPORTED_BY_USERS for path in expanded(pattern))


def with_sections(source: str) -> list[str]:
    """The names whose docstrings have a section of fields or errors."""
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    return [node.name for node in nodes if any(head in (ast.get_docstring(node) or "") for head in SECTIONS)]


@pytest.mark.parametrize("role", ["client", "issuer", "lab", "papers", "server", "shared", "shuffler"])
def test_docstring_sections_stand_only_at_names_that_users_import(role: str) -> None:
    files = [path for path in sorted((ROOT / role).rglob("*.py")) if "build" not in path.parts]
    inside = [path for path in files if not path.relative_to(ROOT).as_posix().startswith(PREFIXES)]
    assert inside
    assert not {str(path): names for path in inside if (names := with_sections(path.read_text()))}


def test_every_place_that_users_import_is_there() -> None:
    assert [place for place in PREFIXES if not (ROOT / place).exists()] == []


def test_a_section_is_found() -> None:
    assert with_sections('class A:\n    """A.\n\n    Attributes\n    ----------\n    b\n        Its b.\n    """\n') == [
        "A"
    ]

"""The pages of proofs name tests and attacks that there are, each claim among them."""

import re
from pathlib import Path

import pytest

from privateer_core.mechanisms import MECHANISMS

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "privacy").glob("*.md"))
OTHERS = [ROOT / "docs" / name for name in ("threat-model.md", "accounting.md", "audit.md")]
_PATH = re.compile(r"`((?:tests|sdk|shared|lab)/[\w./-]*\w)`")


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=lambda page: page.stem)
def test_the_files_that_a_page_names_are_there(page: Path) -> None:
    named = _PATH.findall(page.read_text())
    assert named
    assert not [path for path in named if not (ROOT / path).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_with_claims_has_their_tests_and_attacks(page: Path) -> None:
    text, _, table = page.read_text().partition("\n## Tests and attacks\n")
    if "**Claim.**" in text:
        assert "tests/" in table
        assert "tests/attacks/" in table or "privateer audit" in table or "tests/privacy/" in table


def test_the_page_for_reviewers_lists_every_page_of_proofs() -> None:
    listed = (ROOT / "docs" / "privacy.md").read_text()
    assert not [page.name for page in PAGES if f"](privacy/{page.name}" not in listed]


def test_the_page_for_reviewers_names_every_mechanism() -> None:
    listed = (ROOT / "docs" / "privacy.md").read_text()
    assert not [kind.__name__ for kind in MECHANISMS if f"`{kind.__struct_config__.tag}`" not in listed]

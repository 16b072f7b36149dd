"""The prose linter finds what it is for, and all that people read passes it."""

import pytest

from tests.documents import prose

GOOD = "A device keeps its data. It sends a sealed report, which costs a promise of epsilon 1 at most."
LONG = "A device that " + "keeps what it knows and " * 8 + "at last reports it."


@pytest.mark.parametrize(
    ("planted", "message"),
    [
        (LONG, "a sentence of 47 words, more than 40"),
        ("What keeps tokens away from a device that asks is a warning.", "hides its subject"),
        ("One (a), two (b) and three (c) stand in one line.", "more than two asides"),
        ("The server opens the the report.", "doubled word: the the"),
        ("The cost is an OMGF of the batch.", "'OMGF' stands for nothing yet"),
        ("Ask an operator, e.g. yours.", "'e.g.': for example"),
        ("We use the very best in order to win.", "weasel_words.very"),
        ("We use the best in order to win.", "'in order to': to"),
    ],
)
def test_a_planted_bad_sentence_is_found(planted: str, message: str) -> None:
    assert list(prose.findings(list(prose.of_page(GOOD, "good.md")))) == []
    findings = list(prose.findings(list(prose.of_page(f"# Page\n\n{GOOD}\n\n{GOOD} {planted}\n", "bad.md"))))
    assert [finding for finding in findings if message in finding]
    assert all(finding.startswith("bad.md:5: ") for finding in findings), findings


def test_a_page_that_is_too_long_is_found() -> None:
    page = list(prose.of_page(f"{GOOD}\n\n" * 80, "long.md"))
    assert list(prose.length(page, "long.md")) == ["long.md: a page of 1520 words, more than 1500: divide it"]
    assert list(prose.length(page[:-2], "long.md")) == list(prose.length(page, "docs/configuration.md")) == []


def test_code_formulas_and_defined_abbreviations_are_no_prose() -> None:
    page = f"{GOOD} An optimal margin (OMGF) is an OMGF, $the the OMGF$ and `e.g. the the`.\n\n```sh\n{LONG}\n```\n"
    assert list(prose.findings(list(prose.of_page(page, "page.md")))) == []


@pytest.mark.parametrize(
    "module",
    [
        '"""Open the the report."""',
        'def f():\n    """Open the the report.\n\n    More.\n    """',
        'raise SpecError(f"must be {least} in in all", field="x")',
        'remedy = "give it it"',
        'option(help="The the name.")',
    ],
)
def test_docstrings_help_texts_and_errors_are_read(module: str) -> None:
    assert "doubled word" in "".join(prose.findings(list(prose.of_module(module, "m.py"))))


@pytest.mark.parametrize("rule", ["made", "looked_up"])
def test_exceptions_are_for_pages_that_there_are(rule: str) -> None:
    """Those made from the code are there after `make documents`."""
    ignored = (prose.ROOT / ".gitignore").read_text().split()
    assert [name for name in prose.RULES[rule] if name not in ignored and not (prose.ROOT / name).exists()] == []

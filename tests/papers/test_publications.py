"""Pages on papers open with authors, title, venue and link, and these are what the papers' texts say."""

import ast
import os
import re
from pathlib import Path

import pytest

from privateer_core.algorithms import ALGORITHMS
from privateer_papers.album import PUBLICATIONS, PaperReference
from privateer_papers.catalogue import all_reproductions

ROOT = Path(__file__).parents[2]
CLAIMS = ROOT / "docs/reference/claims-of-papers.md"
EVERY = pytest.mark.parametrize("paper", PUBLICATIONS, ids=lambda paper: f"paper-{paper.number}")


def strip_markup(markdown: str) -> str:
    """A text without links and emphasis, with single blanks."""
    return " ".join(re.sub(r"\[(.*?)\]\(https://.*?\)", r"\1", markdown).replace("*", "").split())


def opening_of(markdown: str) -> str:
    """The first paragraph under the first heading."""
    return strip_markup(markdown.split("\n\n")[1])


@EVERY
def test_pages_open_with_who_wrote_it_and_where_it_is(paper: PaperReference) -> None:
    folder = (ROOT / f"papers/privateer_papers/paper_{paper.number}/README.md").read_text()
    chapter = re.split(rf"\n(?=## Paper {paper.number}:)", (ROOT / "docs/papers.md").read_text())[1]
    for page in (folder, chapter):
        assert opening_of(page) == paper.opening
        (link, *_) = re.findall(r"\]\((https://.*?)\)", page)
        assert link == f"https://{paper.link}"


def test_links_are_numbers_of_arxiv_or_doi() -> None:
    for paper in PUBLICATIONS:
        assert re.fullmatch(r"arxiv\.org/abs/\d{4}\.\d{5}|doi\.org/10\.\d{4}/\S+", paper.link)
    assert [paper.number for paper in PUBLICATIONS] == [1, 2, 3, 4, 5]
    assert len({paper.link for paper in PUBLICATIONS}) == 5


def test_every_reproduction_and_algorithm_is_in_the_table_of_claims() -> None:
    """And what is there exists: reproductions, algorithms of the papers, and the numbers of papers."""
    section = CLAIMS.read_text()
    rows = re.findall(r"^\| (\d) \|.*\|$", section, re.MULTILINE)
    named, reproductions = set(re.findall(r"`(paper-\d[\w-]*)`", section)), set(all_reproductions())
    algorithms = {name for name in ALGORITHMS if name.startswith("paper-")}
    assert reproductions <= named
    assert algorithms <= named
    assert named <= reproductions | algorithms
    assert rows == sorted(rows)
    assert set(rows) == {"1", "2", "3", "4", "5"}
    for number in range(1, 6):
        folder = (ROOT / f"papers/privateer_papers/paper_{number}/README.md").read_text()
        of_paper = {name for name in reproductions if name.startswith(f"paper-{number}-")}
        assert of_paper == set(re.search(r"makes again: (.*)\.", folder)[1].split(", ")), number  # type: ignore[index]


def text_of(number: int) -> str:
    """A paper's text, with single blanks."""
    folder = (
        os.environ.get("PRIVATEER_PAPERS") or Path(os.environ["PRIVATEER_ADULT"].split(",")[0]).parents[1] / "papers"
    )
    (path,) = (file for file in Path(folder).glob(f"{number}-*.txt") if "readable" not in file.name)
    return " ".join(path.read_text(encoding="utf-8").split())


def start_of(number: int) -> str:
    """The first lines of a paper's text: as far as its abstract, and a little of it."""
    return text_of(number)[:3000]


@pytest.mark.data
@EVERY
def test_authors_and_titles_are_those_of_the_text(paper: PaperReference) -> None:
    """Planted: an author of another paper, and a title with another word, are not there."""
    text = start_of(paper.number)
    assert paper.title in text
    assert paper.title.replace("Private", "Secret").replace("A/B", "C/D") not in text
    places = [text.find(name) for name in paper.authors]
    assert -1 not in places
    assert places == sorted(places)
    others = {
        name for publication in PUBLICATIONS for name in publication.authors if publication.number != paper.number
    }
    assert not [name for name in others if name in text]
    assert ("Anonymous authors" in text) == (not paper.authors)


@pytest.mark.data
def test_the_number_at_arxiv_is_that_of_the_text() -> None:
    assert f"arXiv:{PUBLICATIONS[2].link.rsplit('/', 1)[1]}v1" in start_of(3)


KINDS = ("theorem", "algorithm", "table", "figure", "lemma", "corollary", "proposition")
_NUMBERS = r"\d+(?:\.\d+)?(?:(?:, | and | to )\d+(?:\.\d+)?)*"
OF_OTHERS = {
    2: {"corollary 8", "proposition 4", "proposition 11"},
    4: {"theorem 2.8", "lemma 2", "corollary 1"},
    5: {"lemma 20.1", "proposition 2.1", "proposition 3.7"},
}
"""What texts cite of other works; and two of paper 4's own that its text cites by other numbers."""


def claims_in(text: str) -> set[str]:
    """The numbered claims that a text names, e.g. ``theorem 2.5``; "Figures 7 to 9" are three."""
    claims = set()
    for kind, numbers in re.findall(rf"\b({'|'.join(KINDS)})s? ({_NUMBERS})", text, re.IGNORECASE):
        for part in re.split(r", | and ", numbers):
            first, *last = part.split(" to ")
            if last and first.isdigit():
                claims |= {f"{kind.lower()} {number}" for number in range(int(first), int(last[0]) + 1)}
            else:
                claims |= {f"{kind.lower()} {number}" for number in (first, *last)}
    return claims


@pytest.mark.data
@EVERY
def test_every_numbered_claim_of_a_text_has_a_row(paper: PaperReference) -> None:
    """Planted: a row that is taken out is missed."""
    section = CLAIMS.read_text()
    rows = re.findall(rf"^\| {paper.number} \| (.*?) \|", section, re.MULTILINE)
    # Sections, equations and references are numbered alike; only what the text calls by a kind counts.
    named = claims_in(text_of(paper.number)) - OF_OTHERS.get(paper.number, set())
    assert len(named) >= 9
    assert named <= set().union(*map(claims_in, rows))
    assert not named <= set().union(*map(claims_in, rows[1:]))


ROLES = ("shared", "client", "shuffler", "issuer", "server", "lab", "sdk", "deploy", "examples")
NUMBERED = re.compile(r"\bpaper[- ]?\d", re.IGNORECASE)


def test_no_file_of_the_product_names_a_paper_by_its_number() -> None:
    """The numbers mean something in this distribution and in the documentation alone. Planted: this folder has them."""
    endings = {".py", ".js", ".mjs", ".toml", ".html", ".css", ".ts", ".yml"}

    def numbered_files(folder: str) -> list[str]:
        files = (p for p in (ROOT / folder).rglob("*") if p.suffix in endings and "node_modules" not in p.parts)
        return [str(p) for p in files if NUMBERED.search(p.read_text(encoding="utf-8"))]

    assert not [path for folder in ROLES for path in numbered_files(folder)]
    assert numbered_files("papers/privateer_papers")


THEIR_NAMES = re.compile(r"ldpmab|\bconse\b|privatelasso|private_lasso|dp[-_]?dpe|dp[-_]?conse", re.IGNORECASE)


def code_of(text: str) -> str:
    """A module without comments and docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and body and ast.get_docstring(node):
            node.body = [*body[1:], ast.Pass()]
    return ast.unparse(tree)


def test_no_code_of_the_product_has_the_name_of_a_papers_algorithm() -> None:
    """Docstrings say where an idea is from; modules, options and classes do not. Planted: those of the papers do."""
    files = [path for folder in ROLES for path in (ROOT / folder).rglob("*.py") if "node_modules" not in path.parts]
    texts = [text for path in files if THEIR_NAMES.search(text := path.read_text(encoding="utf-8"))]
    assert texts
    assert not [text for text in texts if THEIR_NAMES.search(code_of(text))]
    assert not [path for path in files if THEIR_NAMES.search(path.name)]
    assert THEIR_NAMES.search(code_of((ROOT / "papers/privateer_papers/paper_1/ldpmab.py").read_text()))
    assert not THEIR_NAMES.search(code_of('"""As LDPMAB does."""\nfound = 1  # ConSE\n'))

"""Pages on papers say what the papers' texts say; claims are computed a second way."""

import ast
import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from privateer_core.algorithms import ALGORITHMS
from privateer_papers.album import PUBLICATIONS, PaperReference
from privateer_papers.catalogue import all_reproductions
from privateer_papers.computed_claims import list_claims, list_numbered_claims
from privateer_papers.paper_1.figures import rates as rates_1
from privateer_papers.paper_2.slopes import LINES
from privateer_papers.paper_3.theorems import theorem_2, theorem_3, theorem_4
from privateer_papers.paper_4.welfare import rate_slope
from privateer_papers.paper_4.world import ConSE
from tests.documents import claims

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


def normal_delta(epsilon: float, deviation: float) -> float:
    """Delta of normal noise at sensitivity 1 (Balle and Wang, 2018, Theorem 8)."""
    half, shift = 1 / (2 * deviation), epsilon * deviation
    return float(norm.cdf(half - shift) - math.exp(epsilon) * norm.cdf(-half - shift))


@pytest.mark.parametrize(("paper", "factor", "count"), [(2, 2.0, 4), (5, 2.0, 4), (5, 1.0, 4)])
def test_a_constant_of_normal_noise_holds_up_to_the_stated_epsilon(paper, factor, count):
    start = f"normal noise of sqrt({factor:g} ln"
    rows = [row for row in list_claims(paper) if row["claim"].startswith(start)]
    assert len(rows) == count
    for row in rows:
        delta, end = row["claimed_delta"], row["holds_up_to_epsilon"]
        deviation = math.sqrt(factor * math.log(1.25 / delta))
        assert normal_delta(0.999 * end, deviation / (0.999 * end)) < delta
        assert normal_delta(1.001 * end, deviation / (1.001 * end)) > delta
        assert row["true_delta"] == pytest.approx(normal_delta(10.0, deviation / 10.0), rel=1e-6)


def test_lap_plus_as_printed_has_negative_probabilities():
    """The chances of all changes of a length of 3 at epsilon 1 sum to 1 by the sign that is missing in print."""
    row = next(row for row in list_claims(4) if "Lap+" in row["claim"])
    total = sum(row["true_probability"] * math.exp(-abs(change) / 2) for change in range(-3, 200))
    assert total == pytest.approx(1.0, rel=1e-9)
    assert row["printed_probability"] < 0


def figures_of(paper: int, start: str) -> list[dict[str, Any]]:
    """The computed rows of a paper whose claims start with a text."""
    rows = [row for row in list_claims(paper) if row["claim"].startswith(start)]
    assert rows
    return rows


def test_gradients_by_drawing_points():
    """No point of 200,000 is above the bound, and some are close to it: |g(z) - y| for linear and logistic means."""
    linear, logistic = figures_of(2, "the gradient")
    rng = np.random.default_rng(1)
    z, mean, noise = rng.uniform(-1, 1, (3, 200_000))
    gaps = np.abs(z - (mean + noise))
    assert 0.95 * linear["true_bound"] < gaps.max() <= linear["true_bound"] == 3 * linear["claimed_bound"]
    gaps = np.abs(1 / (1 + np.exp(-z)) - (noise > 0))
    assert 0.99 * logistic["true_bound"] < gaps.max() <= logistic["true_bound"]
    assert logistic["true_bound"] == pytest.approx(logistic["claimed_bound"])


def test_a_bin_of_conse_has_its_first_test_from_the_stated_people_on():
    """The sequences that play, with bins in whole numbers, are within a tenth of the figure."""
    (row,) = figures_of(4, "ConSE drops")
    for dimension in (1, 2, 3):
        people = row[f"people_until_an_arm_can_be_dropped_d_{dimension}"]
        for factor, can_test in ((0.9, False), (1.1, True)):
            sequences = ConSE(round(factor * people), 0.0, dimension=dimension)
            assert (sequences.people / 2 / sequences.bins >= sequences.epoch_length(1)) == can_test, (dimension, factor)


def test_every_claim_has_formula_verdict_commands_and_tests_that_exist():
    folder = Path(__file__).parent
    for claim in list_numbered_claims():
        assert claim.verdict
        assert claim.commands
        assert claim.formula or claim.verdict == "nothing to compute"
        assert claim.tests or not re.search(r"`(account|paper-\d-|audit)", claim.commands)
        assert all((folder / name).is_file() for name in claim.tests)


def test_the_pages_have_what_is_computed():
    """Planted: another figure in a chapter is overwritten."""
    for path, text in claims.documents().items():
        assert path.read_text() == text, "run python -m tests.documents claims"
    page = claims.CHAPTERS.read_text()
    assert "5.12 at delta .25" in page
    assert claims.with_summaries(page.replace("5.12 at delta .25", "1 at delta .25")) == page


def read_thresholds(text: str) -> list[tuple[float, float]]:
    """Epsilons and deltas of a sentence."""
    pairs = re.findall(r"([\d.]+) at delta (\S+?)(?=,| |\.$|\.\s|$)", text)
    return [(float(epsilon), float(delta)) for epsilon, delta in pairs]


@pytest.mark.parametrize(("paper", "holds"), [(2, True), (5, False)])
def test_thresholds_in_words_are_rounded_to_the_side_that_is_true(paper, holds):
    """At each epsilon named for "holds up to" the noise is enough, and at each named for "false from" it is not."""
    (row,) = [claim for claim in list_numbered_claims() if claim.paper == paper and "at delta" in claim.verdict]
    pairs = read_thresholds(row.verdict)
    assert len(pairs) == (4 if holds else 8)
    for index, (epsilon, delta) in enumerate(pairs):
        scale = math.sqrt((2 if index < 4 else 1) * math.log(1.25 / delta))
        margin = -0.01 if holds else 0.01  # a hundredth further the other way it is otherwise
        assert (normal_delta(epsilon, scale / epsilon) <= delta) == holds
        assert (normal_delta(epsilon - margin, scale / (epsilon - margin)) <= delta) != holds


def test_people_in_words_are_too_few():
    """ConSE's first test needs more than the people named, and no more than a hundredth more."""
    (row,) = figures_of(4, "ConSE drops")
    (words,) = [claim.verdict for claim in list_numbered_claims() if claim.claim.startswith("Algorithm 1, ConSE")]
    units = {"": 1.0, "million": 1e6, "billion": 1e9}
    named = [
        float(n.replace(",", "")) * units[unit] for n, unit in re.findall(r"([\d.,]+\d) ?(million|billion|)", words)
    ]
    assert len(named) == 3
    for dimension, people in enumerate(named, 1):
        assert people <= row[f"people_until_an_arm_can_be_dropped_d_{dimension}"] < 1.03 * people


def test_sentences_of_runs_are_read_with_what_is_said_first():
    page = (
        '<h3 id="paper-1-one">One</h3><p class="note">Slow.</p>\n<p><strong>It&#39;s so.</strong></p>'
        '<code>privateer reproduce paper-1-one --seeds 3</code><h3 id="paper-1-two">Two</h3><p>It needs --adult.</p>'
    )
    assert claims.sentences_of_runs(page) == [("privateer reproduce paper-1-one --seeds 3", "It's so. Slow.")]
    assert len(claims.sentences_of_runs(claims.RUNS.read_text())) == 19


def number(pattern: str, text: str) -> float:
    """The one number that a pattern has in a text."""
    (value,) = set(re.findall(pattern, text))
    return float(value)


@pytest.mark.data
def test_formulas_are_those_of_the_texts():
    """Constants of the rows are read from the papers' texts, and give the same figures."""
    first, second, third, fourth, fifth = ("".join(text_of(paper).split()) for paper in (1, 2, 3, 4, 5))
    assert r"{\tau}_{s}=2\sqrt{d}2^{-s/d}" in first
    assert r"\frac{4}{\varepsilon}\xi_{i,k,s}" in first.replace("%", "")
    assert r"6\sqrt{2\ln(3.75/\delta)}/\varepsilon" in second
    assert "randomnoisein$[-1,1]$" in second
    assert r"$|g(a)|\leqC$" in second
    printed = re.findall(r"\*\*Theorem([12])\.\*\*.{,90}?\\frac\{2B\\sqrt\{(2?)s_l\\ln\(([\d.]+)/\\delta\)\}\}", fifth)
    assert printed == [("1", "2", "1.25"), ("2", "", "1.25")]
    for (_, factor, numerator), kind in zip(printed, ("2", "1"), strict=True):
        for row in figures_of(5, f"normal noise of sqrt({kind} ln"):
            scale = math.sqrt(float(factor or 1) * math.log(float(numerator) / row["claimed_delta"]))
            end = row["holds_up_to_epsilon"]
            assert normal_delta(end, scale / end) == pytest.approx(row["claimed_delta"], rel=1e-6)
    first_constant = number(r"\\xi\\leftarrow\\frac\{\\left\((\d+)\\ln", third.replace("%", ""))
    second_constant = number(r"varepsilon_\{1\}\\left\((\d+)\\bar\{s\}\\ln", third)
    log = math.log(2 * 14 / 1e-6)  # 14 episodes, each with its part of epsilon and delta
    scale = math.sqrt(first_constant * log) * math.sqrt(second_constant * 12 * log) * 2 * 14 * log
    (selection,) = figures_of(3, "the selection")
    assert selection["noise_scale"] == pytest.approx(scale, rel=1e-9)
    sampling, inner = (
        number(rf"R_\{{e\}}=\\max\\\{{\\frac\{{{pattern}", fourth)
        for pattern in (r"(\d+)\\log\(", r"\d+\\log\((\d+)n\\cdot")
    )
    (conse,) = figures_of(4, "ConSE drops")
    people = conse["people_until_an_arm_can_be_dropped_d_1"]
    assert people ** (2 / 3) / 2 == pytest.approx(sampling * math.log(inner * people) / 0.5**2 + 1, rel=1e-9)
    assert r"e^{\frac{\varepsilon}{2}}+1-e^{\frac{\varepsilon}{2}[m]}" in fourth


RATES = {
    1: (
        r"n_{\mathrm{P}}\left(n_{\mathrm{P}}\varepsilon^{2}\right)^{-\frac{1+\beta}{2+2d}}",
        r"(\kappa_{m}^{2}n_{\mathrm{Q}_{m}}\varepsilon_{m}^{2}\right)^{\frac{2+2d}{2+2d+2\gamma_{m}}}",
        r"\left(\varepsilon^{-2}t_{s}^{j}\right)\vee",
    ),
    2: (
        r"set$\sigma=\frac{2B\sqrt{2\ln(1.25/\delta)}}{\varepsilon}$",
        r"$\tilde{O}(T^{3/4}/\varepsilon)$regretforconvexlossand$\tilde{O}(T^{2/3}/\varepsilon)$regretforstronglyconvex",
        r"\tilde{\mathcal{O}}(T^{2/3}/\varepsilon)$regretbysetting",
        r"\tilde{\mathcal{O}}(\sqrt{T}/\varepsilon)$regretbysetting",
        r"\frac{(dT)^{3/4}}{\epsilon}",
        r"\frac{1}{4}+\sigma^2",
        r"\frac{\logT}{\Delta_i\varepsilon^2}",
    ),
    3: (
        r"\frac{s^{3/2}_{0}\log^{3}T}{\varepsilon}",
        r"\frac{s^{3/2}_{0}\sqrt{T}\log^{2}T}{\varepsilon}",
        r"\min\left\{s_{0}\logd,\frac{s_{0}\logd}{\varepsilon}\right\}",
    ),
    4: (
        r"\left(E_{n}(\pi)\right)\cdot\left(R_{n}(\pi)\right)^{\frac{2\beta}{2",
        r"O(n^{-\frac{\beta}{2\beta+d}}\sqrt{\logn})",
        r"\mathcal{O}\left(n^{1-\alpha}\right)",
    ),
    5: (r"180g^2\ln\left(4s/\delta\right)}{\hat{\epsilon}^2|U|}", r"T^{1-\alpha/2}", r"$O(dT^{3\alpha/2})$(bits)"),
}
"""What the rows' rates and constants are of, without blanks."""


@pytest.mark.data
@EVERY
def test_rates_of_the_rows_are_those_of_the_texts(paper: PaperReference) -> None:
    """The texts of the other papers lack these sentences: a planted defect."""
    texts = {number: "".join(text_of(number).split()).replace("%", "") for number in RATES}
    assert [rate for rate in RATES[paper.number] if rate not in texts[paper.number]] == []
    assert not [number for number in RATES if number != paper.number if RATES[paper.number][0] in texts[number]]


def test_exponents_that_are_drawn_are_those_of_the_rates() -> None:
    """The rates of papers 1 and 4 at beta = 1, and of each row of paper 2's Table 1."""
    d = rates_1.DIMENSION
    assert pytest.approx((1 + 1) / (2 + 2 * d)) == rates_1.EXPONENT
    assert [rate_slope(d) for d in (1, 2)] == pytest.approx([-1 / (2 + d) for d in (1, 2)])
    printed = {"BCO, convex": 3 / 4, "BCO, strongly convex": 2 / 3, "BCO, convex and smooth": 2 / 3}
    printed |= {"BCO, strongly convex and smooth": 1 / 2, "two points, convex": 1 / 2, "contextual linear": 3 / 4}
    assert {name: LINES[name].exponent for name in printed} == printed
    assert theorem_4(100, 0.5) == theorem_4(100, 1.0) == 2 * theorem_4(100, 2.0)
    assert theorem_3(100, 1.0) / theorem_3(100, 2.0) == 2
    assert theorem_2(100, 1.0) / theorem_3(100, 1.0) == pytest.approx(math.log(100) / 10)

"""The table of the papers' claims, and what is computed in the chapters on papers, from the rows of the commands."""

import html
import re
from pathlib import Path

from privateer_papers.computed_claims import NumberedClaim, list_numbered_claims, list_summaries

TABLE = Path("docs/reference/claims-of-papers.md")
CHAPTERS = Path("docs/papers.md")
RUNS = Path("docs/papers-made-again.html")
_HEAD = """# Claims of the papers

Every numbered claim of the [five papers](../papers.md). Names are those of `privateer reproduce`; `account published N`
and `audit` are commands as well. `python -m tests.documents claims` makes this page: figures in verdicts are computed,
and tests in `tests/papers` compute them in another way.

| paper | claim | formula | verdict | shown by | tests |
|---|---|---|---|---|---|
"""
_MIDDLE = """
`paper-4-intervals` sets our intervals beside others'.

## What runs say

Sentences of the [full run](../papers-made-again.html), of few seeds, by the command that makes each again. It is of the
code of 27 November 2026; [all small versions](../papers-made-small.html) are of 1 December. The full run's Figures 8
and 9 have half of the printed people in each source, where the command now has all; its Table 2 of paper 1 has n/4
from other runs, where the command now reads n/4 and n from one.

| command | what its rows say |
|---|---|
"""


def documents() -> dict[Path, str]:
    """The texts of the files."""
    table = "\n".join(_line(claim) for claim in list_numbered_claims())
    runs = "\n".join(f"| `{command}` | {sentence} |" for command, sentence in sentences_of_runs(RUNS.read_text()))
    return {TABLE: f"{_HEAD}{table}\n{_MIDDLE}{runs}\n", CHAPTERS: with_summaries(CHAPTERS.read_text())}


def _line(claim: NumberedClaim) -> str:
    tests = ", ".join(f"`{name}`" for name in claim.tests)
    return f"| {claim.paper} | {claim.claim} | {claim.formula} | {claim.verdict} | {claim.commands} | {tests} |"


def sentences_of_runs(page: str) -> list[tuple[str, str]]:
    """The command of every reproduction on a page of all, with its sentence and what is said before all else."""
    runs = []
    for block in page.split('<h3 id="paper-')[1:]:
        if sentence := re.search(r"<p><strong>(.*?)</strong></p>", block, re.DOTALL):
            (command,) = re.findall(r"<code>(privateer reproduce .*?)</code>", block)
            notes = re.findall(r'<p class="note">(.*?)</p>', block, re.DOTALL)
            runs.append((command, html.unescape(" ".join(" ".join([sentence[1], *notes]).split()))))
    return runs


def with_summaries(page: str) -> str:
    """Replace the lines of chapters whose evidence is `account published` by computed ones."""
    for paper in range(1, 6):
        evidence = f"`privateer account published {paper}`"
        lines = "".join(f"| {summary} | {evidence} |\n" for summary in list_summaries(paper))
        pattern = re.compile(rf"(?:^\| [^\n]* \| {re.escape(evidence)} \|\n)+", re.MULTILINE)
        before, after = pattern.split(page)
        page = before + lines + after
    return page

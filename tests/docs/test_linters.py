"""The linters of names, prose, docstrings and formulas find what was planted."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from privateer_core.algorithms import ALGORITHMS
from tests.documents import names, prose
from tests.support.renames import compare

_CLEAR = '''
"""Rows of a table."""
def count_rows(table, seen_ids):
    """Return the number of rows."""
    left, right = table
    for row in left:
        seen_ids.add(row)
    return len(seen_ids) + len(right)
'''


def survey_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> names.Survey:
    monkeypatch.setattr(names, "ROOT", tmp_path)
    (tmp_path / "module.py").write_text(source)
    return names.survey_python(tmp_path)


def test_a_clear_module_has_no_empty_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    survey = survey_source(tmp_path, monkeypatch, _CLEAR)
    assert (survey.n_names, survey.n_functions, survey.n_docstrings) == (5, 1, 2)
    assert survey.shares() == {"names": 0, "functions": 0, "docstrings": 0}


@pytest.mark.parametrize(
    ("clear", "empty", "kind"),
    [
        ("for row in left", "for one in left", "names"),
        ("table", "found", "names"),
        ("right", "others", "names"),  # `left` without its other half
        ("count_rows", "_told", "functions"),
        ("Return the number of rows.", "Return how many of those some have, or nothing.", "docstrings"),
    ],
)
def test_a_planted_empty_name_is_found(tmp_path, monkeypatch, clear, empty, kind):
    survey = survey_source(tmp_path, monkeypatch, _CLEAR.replace(clear, empty))
    assert [share > 0 for share in survey.shares().values()] == [kind == each for each in survey.shares()]


def test_javascript_is_surveyed_by_what_declares_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "ROOT", tmp_path)
    (tmp_path / "module.js").write_text(
        "const { found, rows: told } = read();\nfor (const one of told) found.push((own) => own);\n"
        "export function made(rows) { return rows; } // const said = 1\n"
    )
    survey = names.survey_javascript(tmp_path)
    assert [name.split()[1] for name in survey.names] == ["found", "told", "one", "own"]
    assert [name.split()[1] for name in survey.functions] == ["made"]


@pytest.mark.parametrize(("share", "n_messages"), [(2.1, 1), (2.0, 0), (1.9, 0), (1.0, 1)])
def test_a_share_may_only_fall(monkeypatch: pytest.MonkeyPatch, share: float, n_messages: int) -> None:
    limits = {kind: {"folder": 2.0 if kind == "names" else 0.0} for kind in ("names", "functions", "docstrings")}
    monkeypatch.setitem(names.RULES, "limits", limits)
    survey = names.Survey(n_names=1000, names=["name"] * round(10 * share))
    assert len(names.drifts(survey, "folder")) == n_messages


_OLD = """
from module import told, zeta
def _found(one, limit=3):
    made = [one for one in told if one > limit]
    if (some := len(made)): return [zeta(one) for one in made], some
"""
_NEW = '''
from module import zeta, answers
def _select_answers(threshold, limit=3):
    """Return answers."""
    selected = [answer for answer in answers if answer > limit]
    if (n_selected := len(selected)): return [zeta(answer) for answer in selected], n_selected
'''


def test_a_renaming_is_proved() -> None:
    is_same, renames = compare(_OLD, _NEW)
    assert is_same
    assert renames["told", "answers"] == 1
    assert renames["_found", "_select_answers"] == 1


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("answer > limit", "answer >= limit"),
        ("answer > limit", "answer > threshold"),  # another parameter
        ("len(selected)", "len(answers)"),
        ("len(selected)", "sum(selected)"),  # what is built in keeps its name
        ("limit=3", "limit=4"),
        ("return [zeta", "return [answers"),
        ("import zeta, answers", "import zeta, told as answers, answers as told"),
        ("for answer in selected]", "for selected in selected]"),
    ],
)
def test_a_change_is_no_renaming(text: str, change: str) -> None:
    assert text in _NEW
    assert not compare(_OLD, _NEW.replace(text, change))[0]


def test_two_names_that_become_one_are_no_renaming() -> None:
    assert compare("def f(a, b): return a + b", "def f(c, b): return c + b")[0]
    assert not compare("def f(a, b):\n  a = b\n  return a", "def f(b):\n  b = b\n  return b")[0]
    assert not compare("def f(a):\n  b = 1\n  return a, b", "def f(b):\n  b = 1\n  return b, b")[0]


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


ROOT = Path(__file__).parents[2]
SECTIONS = ("\nAttributes\n---", "\nRaises\n---")
IMPORTED_BY_USERS = (
    "client/privateer_client/{arm,async_session,client,delivery,offline,openfeature,session}.py",
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


FORMULA_GOOD = "# Page\n\nA promise of $e^\\varepsilon$ and one of $\\delta < 1$.\n\n$$\n\\frac{1}{2}\n$$\n"


def build(page: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Build a site of this one page, as `make site` builds that of the documentation."""
    configuration: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    hooks = [str(ROOT / hook) for hook in configuration["hooks"]]
    site = {"docs_dir": "pages", "site_dir": "site", "nav": ["README.md"], "extra_css": [], "hooks": hooks}
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(configuration | site))
    (folder / "pages").mkdir()
    (folder / "pages" / "README.md").write_text(page)
    return subprocess.run(
        [Path(sys.executable).parent / "mkdocs", "build", "--quiet"],
        cwd=folder,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.site
def test_formulas_are_set(tmp_path: Path) -> None:
    process = build(FORMULA_GOOD, tmp_path)
    assert process.returncode == 0, process.stderr
    text = (tmp_path / "site" / "index.html").read_text()
    assert text.count('<annotation encoding="application/x-tex">') == 3


@pytest.mark.site
@pytest.mark.parametrize(
    ("planted", "line", "message"),
    [
        ("At most $e^{2$ of them.", 9, "Expected '}'"),
        ("At most $\\oddsratio{2}$ of them.", 9, "Undefined control sequence: \\oddsratio"),
        ("Here\n\n$$\n\\frac{1}{2\n$$", 12, "Unexpected end of input in a macro argument"),
        ("Again $e^\\varepsilon$, then\n$\\left( x$.", 10, "Expected '\\right'"),
    ],
)
def test_a_planted_wrong_formula_fails_the_build_with_its_page_and_line(planted, line, message, tmp_path):
    process = build(f"{FORMULA_GOOD}\n{planted}\n", tmp_path)
    assert process.returncode != 0
    assert f"README.md:{line}: KaTeX parse error: {message}" in process.stdout + process.stderr


TEXT = (ROOT / "docs" / "adding-an-algorithm.md").read_text()
PROSE, EXAMPLE = TEXT.split("## The example\n")
PATHS = sorted(set(re.findall(r"`((?:shared|server|lab|tests|docs|examples)/[\w/.<>-]*)`", PROSE)))


@pytest.mark.parametrize("named", PATHS)
def test_files_that_the_page_names_exist(named: str) -> None:
    tried = [
        named.replace("<name>.py", ending) for name in ALGORITHMS for ending in (f"{name}.py", f"{name}/__init__.py")
    ]
    assert any((ROOT / path).exists() for path in tried)


def test_the_example_is_printed_as_it_is_tested() -> None:
    printed = re.findall(r"^```python\n(.*?)^```$", EXAMPLE, flags=re.DOTALL | re.MULTILINE)
    tested = [(ROOT / "tests" / "support" / "ucb" / name).read_text() for name in ("public.py", "learner.py")]
    assert printed == tested
    assert sum(len(text.splitlines()) for text in tested) <= 130

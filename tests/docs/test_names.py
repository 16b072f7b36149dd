"""The lint of names and the proof of a renaming find what was planted."""

from pathlib import Path

import pytest

from tests.documents import names
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
def test_a_planted_empty_name_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clear: str, empty: str, kind: str
) -> None:
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

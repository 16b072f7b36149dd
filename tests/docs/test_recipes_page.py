"""The recipes run, and the questions are twenty."""

import re
import shlex
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from privateer_lab.cli.command_line import main
from privateer_server.metrics import ServerMetrics

_PAGE = Path("docs/recipes.md").read_text()
_PEOPLE = 2000
_SEED = 5


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", _PAGE, re.DOTALL)


def test_rows_of_a_warehouse_become_effects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Buying is twice as frequent with a gift: fifteen standard errors."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(_SEED)
    offers, countries = rng.choice(["none", "gift"], _PEOPLE), rng.choice(["de", "fr"], _PEOPLE)
    bought = rng.random(_PEOPLE) < np.where(offers == "gift", 0.6, 0.3)
    visits = rng.poisson(3, _PEOPLE)
    with sqlite3.connect("shop.db") as warehouse:
        warehouse.execute("CREATE TABLE visits (person, offer, bought, country, visits_before)")
        columns = (map(str, offers), map(int, bought), map(str, countries), map(int, visits))
        warehouse.executemany("INSERT INTO visits VALUES (?, ?, ?, ?, ?)", zip(range(_PEOPLE), *columns, strict=True))
    for code in blocks("python"):
        exec(code, {})
    (command,) = "".join(blocks("sh")).splitlines()
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(command)[1:])
    output = capsys.readouterr()
    assert not ended.value.code, output.err
    assert "gift" in output.out


def test_the_board_asks_for_metrics_that_are_there() -> None:
    (queries,) = blocks("promql")
    names = set(re.findall(r"privateer_\w+", queries))
    exported = ServerMetrics().export_text().decode()
    gauges = Path("server/privateer_server/api/operators.py").read_text()
    for name in names:
        family = name.removesuffix("_count")
        assert f"# HELP {family} " in exported or f'"{name.removeprefix("privateer_")}"' in gauges, name


def test_there_are_twenty_questions() -> None:
    questions = re.findall(r"^### (.*)$", Path("docs/faq.md").read_text(), re.MULTILINE)
    assert len(questions) == len(set(questions)) == 20
    assert all(question.endswith("?") for question in questions)

"""Sweeps: a tidy table of many runs, which continues after an interruption."""

import csv
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from privateer_lab.cli.input_files import load_spec
from privateer_lab.planning import sweep as sweeps
from privateer_lab.simulation.simulate import list_figures
from tests.support.specs import make_spec
from tests.unit.lab.cli.test_command_line import SPEC, run

VARY = ("--vary", "privacy.epsilon=1,4", "--set", "experiment.horizon=1000", "--seeds", "2", "--jobs", "1")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_sweep_is_tidy_and_goes_on_where_it_was_cut(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    complete, cut = tmp_path / "whole.csv", tmp_path / "cut.csv"
    assert run(capsys, "simulate", SPEC, *VARY, "--out", str(complete))[0] == 0
    assert {(row["privacy.epsilon"], row["seed"]) for row in rows(complete)} == {(e, s) for e in "14" for s in "01"}
    cut.write_bytes(complete.read_bytes()[:-7])
    output = run(capsys, "simulate", SPEC, *VARY, "--out", str(cut))[1]
    assert "4 runs, 1 of them new" in " ".join(output.split())
    assert sorted(map(str, rows(cut))) == sorted(map(str, rows(complete)))


def test_an_interrupted_sweep_keeps_its_rows(capsys, tmp_path, monkeypatch):
    table = tmp_path / "table.csv"
    append = sweeps.SweepJournal.append

    def stop(journal: sweeps.SweepJournal, *row: object) -> None:
        if len(table.read_text().splitlines()) == 3:
            raise KeyboardInterrupt
        append(journal, *row)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(sweeps.SweepJournal, "append", stop)
        code, _, err = run(capsys, "simulate", SPEC, *VARY, "--out", str(table))
    assert (code, len(rows(table))) == (130, 2)
    assert "interrupted after 2 of 4" in err
    assert run(capsys, "simulate", SPEC, *VARY, "--out", str(table))[0] == 0
    assert len(rows(table)) == 4


def test_a_sweep_may_be_parquet(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table = tmp_path / "table.parquet"
    assert run(capsys, "simulate", SPEC, *VARY, "--out", str(table))[0] == 0
    read = parquet.read_table(table)
    assert read.num_rows == 4
    assert np.isfinite(read["regret"].to_numpy()).all()


def test_another_table_is_not_overwritten(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("mine\n1\n")
    code, _, err = run(capsys, "simulate", SPEC, *VARY, "--out", str(table))
    assert code == 2
    assert "holds another table" in err
    assert table.read_text() == "mine\n1\n"


@pytest.mark.parametrize("body", [b"\xff\xfe\n", b"HEAD\n1,2\n", b"HEAD\n\n", b"HEAD\n1,x" + b",1" * 10 + b",d\n"])
def test_a_table_that_is_none_of_a_sweep_is_left_alone(capsys, tmp_path, body):
    table = tmp_path / "sweep.csv"
    assert run(capsys, "simulate", SPEC, *VARY, "--out", str(table))[0] == 0
    body = body.replace(b"HEAD", table.read_bytes().splitlines()[0])
    table.write_bytes(body)
    code, _, err = run(capsys, "simulate", SPEC, *VARY, "--out", str(table))
    assert (code, err.count("\n")) == (2, 1)
    assert "holds another table" in err
    assert table.read_bytes() == body


def test_a_table_cut_off_in_its_first_line_begins_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table = tmp_path / "sweep.csv"
    assert run(capsys, "simulate", SPEC, *VARY, "--out", str(table))[0] == 0
    whole = table.read_text()
    table.write_text(whole[:20])
    assert run(capsys, "simulate", SPEC, *VARY, "--out", str(table))[0] == 0
    assert sorted(table.read_text().splitlines()) == sorted(whole.splitlines())


def test_two_sweeps_do_not_write_one_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table = tmp_path / "sweep.csv"
    with sweeps.SweepJournal(table, ["privacy.epsilon"], list_figures(load_spec(Path(SPEC), []))):
        code, _, err = run(capsys, "simulate", SPEC, *VARY, "--out", str(table))
    assert code == 2
    assert "another sweep writes" in err
    assert run(capsys, "simulate", SPEC, *VARY, "--out", str(table))[0] == 0


def test_rows_of_a_file_that_has_changed_are_run_again(tmp_path: Path) -> None:
    people = tmp_path / "people.csv"
    people.write_text("x,y\n1,a\n")
    population = {"name": "csv", "path": str(people), "label": "y"}
    keys = []
    for _ in range(2):
        keys.append(sweeps.Cell((), make_spec({"population": population}), 0).key)
        people.write_text("x,y\n2,a\n")
        sweeps._hash_file.cache_clear()
    assert keys[0] != keys[1]


def test_a_digest_of_digits_stays_text_in_parquet(tmp_path: Path) -> None:
    table = tmp_path / "sweep.csv"
    table.write_text("seed,spec\n0,0012345678901234\n")
    sweeps.write_parquet(table, tmp_path / "sweep.parquet")
    assert parquet.read_table(tmp_path / "sweep.parquet")["spec"].to_pylist() == ["0012345678901234"]


def test_a_journal_is_read_as_other_tables_are(tmp_path: Path) -> None:
    """Planted: a digest of digits, the trust model none, and missing figures."""
    table = tmp_path / "sweep.csv"
    rows = ["privacy.model,experiment.arms,seed,regret,holds,spec", 'none,"[1, 2]",0,12,True,1234567890123456']
    table.write_text("\n".join([*rows, 'local,"[1, 2]",1,nan,False,12e4567890123456', "local,a,2,1.5,True,00aa\n"]))
    assert sweeps.read_journal(table) == {
        "privacy.model": ["none", "local", "local"],
        "experiment.arms": ["[1, 2]", "[1, 2]", "a"],
        "seed": [0, 1, 2],
        "regret": [12.0, None, 1.5],
        "holds": [True, False, True],
        "spec": ["1234567890123456", "12e4567890123456", "00aa"],
    }

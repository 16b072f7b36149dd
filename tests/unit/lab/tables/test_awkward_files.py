"""The same people in spellings of real exports: both commands read them alike."""

import gzip
import io
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import privateer_lab as lab
from privateer_core.errors import PrivateerError, SpecError
from privateer_lab.tables.dialect import COLUMNS_MAX
from tests.unit.lab.cli.test_command_line import run

PEOPLE = 400
HEADER = ("arm", "age", "city", "spend")


def people() -> list[list[str]]:
    """Rows of four columns, of which spend has two decimals."""
    rng = np.random.default_rng(1)
    arms, cities = ("new", "old", "mid"), ("Köln", "Wien", "Zürich")
    spend = np.round(np.exp(rng.normal(3, 1.5, PEOPLE)), 2)
    return [[arms[rng.integers(3)], str(rng.integers(18, 80)), cities[rng.integers(3)], f"{x:.2f}"] for x in spend]


def text(rows: list[list[str]], separator: str = ",", header: tuple[str, ...] = HEADER) -> str:
    quoted = [[f'"{cell}"' if separator in cell or "\n" in cell else cell for cell in row] for row in rows]
    return "".join(separator.join(row) + "\n" for row in [list(header), *quoted])


def edit(column: int, change: Callable[[int, str], str]) -> str:
    return text([[*row[:column], change(n, row[column]), *row[column + 1 :]] for n, row in enumerate(people())])


def spend(change: Callable[[int, str], str]) -> str:
    return edit(3, change)


def is_much(cell: str) -> bool:
    return float(cell) > 20


def workbook() -> bytes:
    """Return the first bytes of an Excel file."""
    return b"PK\x03\x04" + bytes(100)


def decimals() -> bytes:
    rows, out = people(), io.BytesIO()
    columns = {
        "arm": [row[0] for row in rows],
        "spend": pa.array([Decimal(row[3]) for row in rows], pa.decimal128(12, 2)),
    }
    parquet.write_table(pa.table(columns), out)
    return out.getvalue()


AS_NUMBERS: dict[str, str | bytes] = {
    "plain.csv": text(people()),
    "latin.csv": text(people()).encode("latin-1"),
    "bom.csv": text(people()).encode("utf-8-sig"),
    "excel.txt": text(people(), "\t").encode("utf-16"),
    "semicolon.csv": text(people(), ";"),
    "pipe.csv": text(people(), "|"),
    "tab.tsv": text(people(), "\t"),
    "comma.csv": text([[*row[:3], row[3].replace(".", ",")] for row in people()], ";"),
    "grouped.csv": text([[*row[:3], f"{float(row[3]):,.2f}"] for row in people()]),
    "swiss.csv": text([[*row[:3], f"CHF {float(row[3]):,.2f}".replace(",", "'")] for row in people()], ";"),
    "euro.csv": text(
        [[*row[:3], f"{float(row[3]):,.2f} €".translate(str.maketrans(",.", ".,"))] for row in people()], ";"
    ),
    "dollar.csv": spend(lambda _, cell: f"${float(cell):,.2f}"),
    "plain.csv.gz": gzip.compress(text(people()).encode()),
    "blank-lines.csv": "\n\n" + text(people()).replace("\n", "\n\n"),
    "whole.csv": text([[*row[:3], f"{1000 * float(row[3]):,.0f}".replace(",", ".")] for row in people()], ";"),
    "spaces.csv": text(people()).replace(",", " , "),
    "trailing.csv": text([[*row, ""] for row in people()], header=(*HEADER, "")),
    "decimal.parquet": decimals(),
}
AS_YES: dict[str, str] = {
    name: spend(lambda _, cell, words=words: words[is_much(cell)])
    for name, words in {
        "yes": ("no", "yes"),
        "y": ("N", "Y"),
        "true": ("false", "true"),
        "t": ("F", "T"),
        "one": ("0", "1"),
        "one-point": ("0.0", "1.0"),
        "capital": ("No", "YES"),
    }.items()
}
REFUSED: dict[str, tuple[str | bytes, str]] = {
    "empty.csv": ("", "is empty"),
    "header.csv": ("arm,age,spend\n", "table: has no rows"),
    "headless.csv": ("1,2,3\n4,5,6\n", "has no header: its first row has numbers"),
    "twice.csv": (text(people(), header=("arm", "age", "age", "spend")), "two columns of the same name, 'age'"),
    "ragged.csv": (text(people()) + "new,1,Wien,3,extra\n", rf"row {PEOPLE + 2} of .* has 5 columns, not 4"),
    "book.xlsx": (workbook(), "is a workbook or an archive, as Excel saves, and no CSV file"),
    "book.csv": (workbook(), "is a workbook or an archive, as Excel saves, and no CSV file"),
    "fake.csv.gz": ("no gzip", "is damaged, or not compressed as its name says"),
    "cut.csv.gz": (gzip.compress(text(people()).encode())[:-20], "is damaged, or not compressed"),
    "words.csv": (spend(lambda n, _: ("ill", "cured")[n % 2]), "spend: must be numbers, or yes and no"),
    "half.csv": (spend(lambda n, cell: cell if n % 2 else "cured"), "spend: must be numbers, or yes and no"),
    "same.csv": (spend(lambda *_: "yes"), "spend: every row has the same reward"),
    "one-arm.csv": (edit(0, lambda *_: "new"), "arm: every row has the same option"),
    "no-arm.csv": (edit(0, lambda *_: "NA"), "arm and spend: has no row with a value"),
    "other-names.csv": (text(people(), header=("group", "age", "city", "spend")), r"arm: no column has this name \(ch"),
    "wide.csv": (
        ",".join(f"x{n}" for n in range(20_000)) + "\n",
        f"has 20,000 columns, and at most {COLUMNS_MAX:,} are read",
    ),
}


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def load(path: Path, **options: Any) -> tuple[Any, lab.FinishedTest]:
    """Return the draft and the finished test of a file."""
    options |= {"arm": "arm", "reward": "spend"}
    return lab.spec_from(path, **options), lab.analyze(path, **options)


def shared_notes(drafted: Any, analysis: lab.FinishedTest) -> set[str]:
    return set(drafted.notes) & set(analysis.assumed)


@pytest.mark.parametrize("name", AS_NUMBERS)
def test_numbers_are_the_same_however_they_are_written(name: str, tmp_path: Path) -> None:
    drafted, analysis = load(write(tmp_path, name, AS_NUMBERS[name]), control="old", bounds=None)
    unit = 1000 if name == "whole.csv" else 1
    spends = [unit * float(row[3]) for row in people()]
    assert (drafted.spec.reward.kind, drafted.spec.reward.low) == ("numeric", 0.0)
    assert (analysis.spec.reward.low, analysis.spec.reward.high) == (min(spends), max(spends))
    assert sum(spend > drafted.spec.reward.high for spend in spends) <= 0.02 * PEOPLE
    assert drafted.spec.options == analysis.spec.options == ("old", "mid", "new")
    if name != "decimal.parquet":
        assert {"age", "city"} == set(drafted.spec.features)
        assert drafted.spec.features["city"].levels
    mid, old = (np.mean([unit * float(row[3]) for row in people() if row[0] == arm]) for arm in ("mid", "old"))
    effect = next(candidate for candidate in analysis.answer.effects if candidate.arm == "mid")
    assert effect.value == pytest.approx(mid - old, rel=1e-4)
    assert analysis.answer.people == PEOPLE


@pytest.mark.parametrize("name", AS_YES)
def test_yes_and_no_are_read_in_their_usual_spellings(name: str, tmp_path: Path) -> None:
    drafted, analysis = load(write(tmp_path, "table.csv", AS_YES[name]))
    assert (drafted.spec.reward.kind, analysis.spec.reward.kind) == ("binary", "binary")
    yes = {arm: np.mean([is_much(row[3]) for row in people() if row[0] == arm]) for arm in ("mid", "old")}
    effect = next(candidate for candidate in analysis.answer.effects if candidate.arm == "old")
    assert effect.value == pytest.approx(yes["old"] - yes["mid"], abs=1e-5)


@pytest.mark.parametrize("name", REFUSED)
def test_both_commands_refuse_in_the_same_words(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, words = REFUSED[name]
    path = write(tmp_path, name, content)
    outputs = [
        run(capsys, command, str(path), "--reward", "spend", "--arm", "arm") for command in ("spec-from", "analyze")
    ]
    assert outputs[0] == outputs[1]
    code, out, err = outputs[0]
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert re.search(words, err), err
    assert "(" in err, "no remedy"


def test_a_file_that_is_not_there_is_no_other_kind_of_file(tmp_path: Path) -> None:
    for command in (lab.spec_from, lab.analyze):
        with pytest.raises(SpecError, match="there is no file of this name"):
            command(tmp_path / "none.csv", arm="arm", reward="spend")


GAPS = ("", "NA", "N/A", "#N/A", "NaN", "nan", "NULL", "null", "None", "?", ".", "-", "missing")


@pytest.mark.parametrize("mark", GAPS)
def test_gaps_are_counted_in_every_usual_spelling(mark: str, tmp_path: Path) -> None:
    """Every tenth cell is a gap: in ages it is no level, and rows without spend or arm are left out by both."""
    path = write(tmp_path, "age.csv", edit(1, lambda n, cell: cell if n % 10 else mark))
    drafted = lab.spec_from(path, arm="arm", reward="spend")
    assert drafted.spec.features["age"].missing
    assert any(note == "age: 40 of 400 rows have no value." for note in drafted.notes)
    for column, name in ((3, "spend"), (0, "arm")):
        drafted, analysis = load(write(tmp_path, f"{name}.csv", edit(column, lambda n, cell: cell if n % 10 else mark)))
        assert f"40 rows without {name} are left out." in shared_notes(drafted, analysis)
        assert analysis.answer.people == PEOPLE - 40
        assert drafted.spec.options == analysis.spec.options == ("mid", "new", "old")


def test_missing_outcomes_are_counted_by_arm_in_both_commands(tmp_path: Path) -> None:
    rows = ["a,1", "a,0"] * 50 + ["b,"] * 30 + ["b,1", "b,0"] * 35
    drafted, analysis = load(write(tmp_path, "table.csv", "\n".join(["arm,spend", *rows])))
    assert "Rows without spend, by arm: a: 0 of 100, b: 30 of 100." in shared_notes(drafted, analysis)


def test_infinite_numbers_are_no_levels(tmp_path: Path) -> None:
    path = write(tmp_path, "age.csv", edit(1, lambda n, cell: cell if n % 10 else "inf"))
    drafted = lab.spec_from(path, arm="arm", reward="spend")
    assert drafted.spec.features["age"].missing
    assert "age: 40 of 400 rows have no value, 40 of which are infinite numbers." in drafted.notes
    drafted, analysis = load(write(tmp_path, "spend.csv", spend(lambda n, cell: cell if n % 10 else "inf")))
    assert "40 of the rows without spend have an infinite number." in shared_notes(drafted, analysis)


def test_arms_that_differ_by_case_are_named_and_blanks_are_trimmed(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", edit(0, lambda n, cell: cell.upper() if n % 5 == 0 else cell + "  "))
    drafted, analysis = load(path)
    assert set(drafted.spec.options) == set(analysis.spec.options) == {"mid", "new", "old", "MID", "NEW", "OLD"}
    note = "arm: 'MID' and 'mid' count as different options: write them alike if they are one."
    assert note in shared_notes(drafted, analysis)


def test_the_row_of_a_total_is_left_out(tmp_path: Path) -> None:
    drafted, analysis = load(write(tmp_path, "t.csv", text(people()) + "TOTAL,,,99999.00\n"))
    assert "arm: the row of 'TOTAL' is a sum of others, and is left out." in shared_notes(drafted, analysis)
    assert drafted.spec.options == ("mid", "new", "old")
    assert analysis.answer.people == PEOPLE


def test_lower_may_be_better_in_a_draft_too(tmp_path: Path) -> None:
    drafted, analysis = load(write(tmp_path, "t.csv", text(people())), lower_is_better=True)
    spends = [float(row[3]) for row in people()]
    assert drafted.spec.reward.high == 0
    assert (analysis.spec.reward.low, analysis.spec.reward.high) == (-max(spends), -min(spends))
    assert any("A lower spend counts as better" in note for note in drafted.notes)
    yes = lab.spec_from(write(tmp_path, "yes.csv", AS_YES["yes"]), arm="arm", reward="spend", lower_is_better=True)
    share = np.mean([not is_much(row[3]) for row in people()])
    assert yes.spec.reward.base_rate == pytest.approx(share, abs=0.01)
    rare = {"arm": ["a", "b"] * 1500, "ill": [n < 3 for n in range(3000)]}
    drafted = lab.spec_from(rare, arm="arm", reward="ill", lower_is_better=True)
    assert drafted.spec.reward.base_rate == pytest.approx(0.999)


def test_a_table_of_an_arm_and_yes_or_no_is_a_test_of_everybody(tmp_path: Path) -> None:
    """A draft of a file and a simulation of its people reproduce the effect in its rows."""
    rows = ["old,no"] * 900 + ["old,yes"] * 100 + ["new,no"] * 800 + ["new,yes"] * 200
    path = write(tmp_path, "ab.csv", "\n".join(["arm,bought", *rows]))
    drafted = lab.spec_from(path, arm="arm", reward="bought", control="old")
    assert drafted.spec.options == ("old", "new")
    assert "No column makes a feature: this is the spec of a test among everybody." in drafted.notes
    drafted.write(tmp_path / "ab.toml")
    assert "Features were not tried" in " ".join(drafted.people.notes)
    spec = lab.spec(tmp_path / "ab.toml", {"privacy.model": "none", "privacy.epsilon": None})
    played = lab.simulate(spec, seeds=1)
    assert played.runs[0].reward == pytest.approx(0.15, abs=0.05)
    assert lab.analyze(path, arm="arm", reward="bought", control="old").answer.recommended == "new"


def test_damaged_files_have_no_traceback(tmp_path: Path) -> None:
    """A byte of a small file is replaced in 24 ways: both commands answer, or refuse in a sentence."""
    rng, body = np.random.default_rng(3), text(people()[:120]).encode()
    for trial in range(24):
        index = int(rng.integers(len(body)))
        sign = (b",", b"\n", b'"', b"\x00", b"\xff", b"\r", b";", b"\xc3")[trial % 8]
        path = write(tmp_path, "t.csv", body[:index] + sign + body[index + 1 :])
        errors = []
        for command in (lab.spec_from, lab.analyze):
            try:
                command(path, arm="arm", reward="spend")
            except PrivateerError as error:
                errors.append(str(error))
        assert len(errors) in (0, 2), errors
        assert len(set(errors)) < 2, errors

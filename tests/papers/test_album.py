"""All reproductions on a page: it exists from the first on, resumes, and reports faults of the data."""

import gzip
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from privateer_lab.render.pictures import create_panels
from privateer_papers import catalogue, finished_runs
from privateer_papers.album import PUBLICATIONS
from privateer_papers.catalogue import all_reproductions
from privateer_papers.data_files import DATA
from privateer_papers.reproduction import Effort, Reproduction, Row, Rows, TableLine
from tests.support.pages import check
from tests.unit.lab.cli.test_command_line import run

ROOT = Path(__file__).parents[2]
ADULT_ROW = "39, Private, 7, Bachelors, 13, Divorced, Sales, Unmarried, White, Male, 2174, 0, 40, Cuba, <=50K\n"
NAMES = ("paper-1-one", "paper-3-two", "paper-5-three")


class Plays(list[str]):
    """Reproductions that were run, in order; a reproduction may be interrupted."""

    interrupted = ""

    def of(self, name: str) -> Callable[[Effort], Iterator[Row]]:
        def rows(effort: Effort) -> Iterator[Row]:
            self.append(name)
            for seed in range(effort.seeds):
                yield {"seed": seed, "regret": 1.0 + seed, "read": sorted(effort.data)}
                if name == self.interrupted:
                    raise KeyboardInterrupt

        return rows


def draw(title: str, rows: Rows) -> Any:
    figure, axes = create_panels(1, title)
    axes[0].plot([row["regret"] for row in rows])
    return figure


def table_lines(rows: Rows) -> list[TableLine]:
    return [TableLine(f"<b>line {place}</b>", "", "7", f"{rows.mean()[0]:g}") for place in range(3)]


@pytest.fixture
def plays(monkeypatch: pytest.MonkeyPatch) -> Plays:
    """Three small reproductions in the place of all; the second needs data, and the third warns."""
    plays = Plays()
    facts = ({"reads": ("published",)}, {"needs": "adult"}, {"warnings": lambda rows: ["ours is <worse>"]})
    kinds = {
        name: Reproduction(
            name,
            f"Paper {name[6]}: it is & {name}",
            plays.of(name),
            draw,
            lambda rows: f"it has {len(rows)} rows.",
            table_lines,
            minutes=1,
            remarks=lambda rows: [f"in full: {len(rows)} rows"],
            **fact,  # type: ignore[arg-type]
        )
        for name, fact in zip(NAMES, facts, strict=True)
    }
    monkeypatch.setattr(catalogue, "all_reproductions", lambda: kinds)
    return plays


def reproduce(capsys: pytest.CaptureFixture[str], out: Path, *options: str) -> tuple[int, str, str]:
    return run(capsys, "reproduce", "--all", "--quick", "--out", str(out), *options)


def text_of(out: Path) -> str:
    return check((out / "index.html").read_text()).text


def write_adult_file(tmp_path: Path, rows: int = 16_281) -> str:
    path = tmp_path / "adult.data.gz"
    path.write_bytes(gzip.compress((ADULT_ROW * rows).encode()))
    return str(path)


def test_all_are_on_one_page_without_requests(plays: Plays, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = reproduce(capsys, tmp_path, "--adult", write_adult_file(tmp_path))
    assert code == 0
    assert plays == list(NAMES)
    assert err.startswith("privateer: all 3 figures and tables: about ")
    page = check((tmp_path / "index.html").read_text())
    assert {*NAMES, "paper-1", "paper-5"} <= page.anchors
    assert len(page.images) == 3
    assert "3 of 3 figures and tables in their small version, seeds 0 to 1" in page.text
    assert "Look at this first Paper 5: it is & paper-5-three: ours is <worse>" in page.text
    for part in ("it has 2 rows.", "in full: 2 rows", "<b>line 2</b>", "run here", "--adult "):
        assert part in page.text
    assert "published" not in page.text.split("Paper 1: it is")[-1].split("Remarks")[0]
    for paper in PUBLICATIONS:
        assert paper.opening in page.text


def test_a_run_with_the_same_settings_is_resumed(plays, capsys, tmp_path):
    plays.interrupted = NAMES[2]
    data = ("--adult", write_adult_file(tmp_path))
    assert reproduce(capsys, tmp_path, *data)[0] == 130
    text = text_of(tmp_path)
    assert "Interrupted; the runs until then show: it has 1 rows." in text
    assert ", interrupted" in text
    assert f"2 of {len(NAMES)} figures and tables" in text
    plays.clear()
    plays.interrupted = ""
    assert reproduce(capsys, tmp_path, *data)[0] == 0
    assert plays == [NAMES[2]]
    for seeds, repeated in (("3", list(NAMES)), ("2", [])):  # a run of more seeds serves where fewer are asked for
        plays.clear()
        assert reproduce(capsys, tmp_path, *data, "--seeds", seeds)[0] == 0
        assert plays == repeated
    assert "small version, seeds 0 to 2, in" in text_of(tmp_path)
    plays.clear()
    assert reproduce(capsys, tmp_path, "--adult", write_adult_file(tmp_path, 32_561))[0] == 0
    assert plays == [NAMES[1]]
    assert "small version, 2 to 3 seeds each, in" in text_of(tmp_path)


def test_another_version_or_a_lost_picture_is_run_again(plays, capsys, tmp_path, monkeypatch):
    assert reproduce(capsys, tmp_path)[0] == 0
    for ending in (".png", ".svg"):
        (tmp_path / (NAMES[0] + ending)).unlink()
    (tmp_path / f"{NAMES[2]}.json").write_text("{")
    plays.clear()
    assert reproduce(capsys, tmp_path)[0] == 0
    assert plays == [NAMES[0], NAMES[2]]
    monkeypatch.setattr(finished_runs, "version", lambda _: "9.9")
    plays.clear()
    assert reproduce(capsys, tmp_path)[0] == 0
    assert plays == [NAMES[0], NAMES[2]]


def test_without_data_the_rest_runs_and_the_page_names_the_missing_option(plays, capsys, tmp_path):
    assert reproduce(capsys, tmp_path)[0] == 0
    assert plays == [NAMES[0], NAMES[2]]
    assert f"It needs --adult: {DATA['adult'].description}." in text_of(tmp_path)


def write_broken_files(tmp_path: Path) -> dict[str, str]:
    """Write files that are not UCI Adult, by what is wrong with each."""
    files = {
        "cut off": gzip.compress((ADULT_ROW * 16_281).encode())[:-40],
        "one row short": gzip.compress((ADULT_ROW * 16_280).encode()),
        "other columns": b"a,b,c\n1,2,3\n",
        "another year": (ADULT_ROW * 49_531).encode(),
    }
    for name, content in files.items():
        (tmp_path / f"{name}{'.gz' if content[:2] == bytes([31, 139]) else ''}").write_bytes(content)
    paths = {path.stem: str(path) for path in tmp_path.iterdir() if path.is_file()}
    return {**paths, "missing": str(tmp_path / "none.data")}


def test_a_file_that_is_not_the_data_set_gives_one_line_of_error_and_the_rest_runs(plays, capsys, tmp_path):
    files = write_broken_files(tmp_path)
    assert len(files) == 5
    for fault, path in files.items():
        plays.clear()
        code, _, err = reproduce(capsys, tmp_path / "out" / fault, "--adult", path)
        (line,) = [line for line in err.splitlines() if not line.endswith(" ...")]
        assert code == 2, fault
        assert plays == [NAMES[0], NAMES[2]]
        assert line.startswith("privateer: --adult: ")
        assert "32,561 and 16,281 rows" in line
        assert "archive.ics.uci.edu" in line
        assert line.removeprefix("privateer: ") in text_of(tmp_path / "out" / fault)


def read_album_page(page: str) -> tuple[Any, int, str]:
    """A page of the documentation, how many figures and tables it says it made, and the words after that."""
    checked = check((ROOT / "docs" / page).read_text())
    count, remark = re.findall(rf"(\d+) of {len(all_reproductions())} figures and tables(.*?), in ", checked.text)[0]
    return checked, int(count), remark


def test_the_documentation_has_the_page_of_all_small_versions() -> None:
    """It has every figure and table: whoever adds one makes it again, with --all --quick."""
    page, count, remark = read_album_page("papers-made-small.html")
    assert set(all_reproductions()) <= page.anchors
    assert remark.startswith(" in their small version, seeds 0 to ")
    assert len(page.images) == count == len(all_reproductions()) - 2  # two need files that are not to be had
    assert "UTC" in page.text

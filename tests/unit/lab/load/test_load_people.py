"""A load run plays the people of the spec that ``create`` was given, and says whom it plays."""

from pathlib import Path
from typing import Any

import pytest

from privateer_core.answer.people import HeldReports, People
from privateer_core.errors import SpecError
from privateer_core.spec.spec import Spec
from privateer_lab.cli import ask as experiments
from privateer_lab.cli.command_line import main as privateer
from privateer_lab.cli.input_files import load_spec
from privateer_lab.load import command
from privateer_lab.load.populations import keep_people, kept_people
from privateer_lab.load.result import LoadResult
from privateer_server.experiments.spec_changes import with_arm, without_arm
from tests.support.specs import make_spec

ROOT = Path(__file__).parents[4]
MIXED = {"population": {"name": "mixed", "function": 6}}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PRIVATEER_LEDGER", str(tmp_path / "ledger.db"))
    return tmp_path / "populations"


def played(monkeypatch: pytest.MonkeyPatch, spec: Spec, *options: str) -> dict[str, Any]:
    """The population that a load run of an experiment plays."""
    asked: dict[str, Any] = {}

    def run(*_: object, **how: Any) -> LoadResult:
        asked.update(how)
        how["begins"]()
        return LoadResult()

    monkeypatch.setattr(command, "_spec", lambda _: spec.without_people())
    monkeypatch.setattr(command, "run_load", run)
    command.main([spec.name, *options])
    return dict(asked["population"])


def test_load_plays_the_people_of_the_spec_that_was_created(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = ROOT / "examples" / "miss-shuffle.toml"
    monkeypatch.setattr(experiments, "post", lambda *_: ({}, True))
    monkeypatch.setattr("sys.argv", ["privateer", "create", str(path), "--token", "x"])
    with pytest.raises(SystemExit):
        privateer()
    assert played(monkeypatch, load_spec(path, [])) == {"name": "mixed", "function": 6}
    said = capsys.readouterr().err
    assert said == (
        "privateer: simulated people: mixed (function = 6), those of the spec that privateer create was given here\n"
        "privateer: they take part over HTTP: hundreds to thousands a second ...\n"
    )


HELD = People(40, 20, HeldReports(at_shuffler=10, needed=10), not_asked=10)


@pytest.mark.parametrize(
    ("result", "lines"),
    [
        (
            LoadResult(accepted=30, endpoint="shuffler", account=HELD),
            ["shuffler accepted", "20 counted", "10 held at the"],
        ),
        (LoadResult(accepted=30, account=People(30, 30)), ["server accepted", "30 counted in closed rounds"]),
        (LoadResult(accepted=30), ["server accepted", "not known: the server did not say"]),
    ],
)
def test_what_was_accepted_and_what_is_counted_are_told_apart(
    result: LoadResult, lines: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_spec", lambda _: make_spec({}))
    monkeypatch.setattr(command, "run_load", lambda *_, **__: result)
    command.main(["test"])
    out = capsys.readouterr().out
    assert all(line in out for line in lines)
    assert "reports counted" not in out


def test_load_says_that_it_does_not_know_the_people_of_a_spec(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert played(monkeypatch, make_spec(MIXED)) == {"name": "peaks"}
    assert "peaks, the first that fit: nobody here knows those of its spec" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "people"), [("miss-shuffle", {"name": "mixed", "function": 6}), ("stations", {"name": "linear"})]
)
def test_where_nothing_was_created_load_looks_for_the_spec_in_a_folder(
    name: str, people: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PRIVATEER_SPECS", str(ROOT / "examples"))
    spec = load_spec(ROOT / "examples" / f"{name}.toml", [])
    found = played(monkeypatch, spec)
    assert found == spec.population
    assert people.items() <= found.items()
    assert f"those of {name}.toml" in capsys.readouterr().err


def test_a_folder_without_the_spec_is_said_with_a_remedy_that_works(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Planted: a spec of the same name with other arms, one that is damaged, and one whose people are code."""
    written = load_spec(ROOT / "examples" / "peaks-shuffle.toml", [])
    text = (ROOT / "examples" / "peaks-shuffle.toml").read_text()
    (tmp_path / "arms.toml").write_text(text.replace("arms = [", 'arms = ["another", '))
    (tmp_path / "damaged.toml").write_text("[experiment")
    (tmp_path / "own.toml").write_text(text.replace('name = "peaks"', 'name = "own"\npath = "os:system"'))
    monkeypatch.setenv("PRIVATEER_SPECS", str(tmp_path))
    assert played(monkeypatch, written)
    said = capsys.readouterr().err
    assert "the first that fit: its spec is not in PRIVATEER_SPECS (name the folder of the spec there)" in said
    monkeypatch.setenv("PRIVATEER_SPECS", str(ROOT / "examples"))
    assert played(monkeypatch, written) == written.population
    assert "those of peaks-shuffle.toml" in capsys.readouterr().err


def test_people_who_are_named_are_played(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    keep_people(make_spec(MIXED))
    assert played(monkeypatch, make_spec(MIXED), "--population", "smooth") == {"name": "smooth"}
    assert "smooth, as --population names them" in capsys.readouterr().err
    assert played(monkeypatch, make_spec(MIXED), "--set", "population.function=3") == {"name": "mixed", "function": 3}


def test_another_experiment_of_the_name_has_other_people(folder: Path) -> None:
    keep_people(make_spec(MIXED))
    longer = {"experiment.horizon": 12_345, "privacy.epsilon": 2.0}
    assert kept_people(make_spec(longer)) == MIXED["population"]
    assert kept_people(make_spec({"experiment.arms": ["x", "y"]})) is None
    assert kept_people(make_spec({"context.features": {"z": {"low": 0.0, "high": 1.0}}})) is None
    keep_people(make_spec({}))
    assert list(folder.iterdir()) == []


def test_people_stay_when_an_arm_is_added_or_retired(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_people(make_spec(MIXED))
    spec = without_arm(with_arm(make_spec({}), "another"), "arm-0")
    assert kept_people(spec) == MIXED["population"]
    assert played(monkeypatch, spec) == MIXED["population"]


def test_files_are_found_from_any_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    keep_people(make_spec({"population": {"name": "adult", "path": "a.csv, b/c.csv"}}))
    monkeypatch.chdir("/")
    assert kept_people(make_spec({})) == {"name": "adult", "path": f"{tmp_path}/a.csv,{tmp_path}/b/c.csv"}


def test_sources_have_people_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [
        {"name": "clinic", "people": 500, "epsilon": 1.0, "shares": [0.5, 0.25, 0.25], "population": {"name": "smooth"}}
    ]
    keep_people(make_spec({**MIXED, "sources": sources}))
    spec = make_spec({"sources": [{key: one for key, one in sources[0].items() if key != "population"}]})
    assert [kept_people(spec, cohort) for cohort in ("", "clinic")] == [MIXED["population"], {"name": "smooth"}]


@pytest.mark.parametrize("kept", [b"", b"{}", b"\xff", b"[]"])
def test_a_damaged_file_is_named_with_the_remedy(kept: bytes, folder: Path) -> None:
    keep_people(make_spec(MIXED))
    [path] = folder.iterdir()
    path.write_bytes(kept)
    with pytest.raises(SpecError, match=r"cannot be read.*remove .*test\.json"):
        kept_people(make_spec({}))


def test_create_goes_on_where_nothing_can_be_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "populations").write_text("in the way")
    monkeypatch.setattr(experiments, "post", lambda *_: ({}, True))
    path = ROOT / "examples" / "miss-shuffle.toml"
    monkeypatch.setattr("sys.argv", ["privateer", "create", str(path), "--token", "x"])
    with pytest.raises(SystemExit) as stop:
        privateer()
    told = capsys.readouterr()
    assert (stop.value.code or 0, told.out) == (0, "created miss-shuffle\n")
    assert told.err.startswith("privateer: warning: the spec's population is not kept")
    assert told.err.count("\n") == 1

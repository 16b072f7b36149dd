"""A load run simulates the people of the spec that was created, and names them."""

from pathlib import Path
from typing import Any

import pytest

from privateer_core.answer.people import HeldReports, People
from privateer_core.errors import SpecError
from privateer_core.spec.spec import Spec
from privateer_lab.cli import create as experiments
from privateer_lab.cli.command_line import main as privateer
from privateer_lab.cli.input_files import load_spec
from privateer_lab.load import command
from privateer_lab.load.driver import LoadResult
from privateer_lab.load.populations import load_stored_population, store_population
from privateer_server.experiments.spec_changes import add_arm, retire_arm
from tests.support.specs import make_spec

ROOT = Path(__file__).parents[4]
MIXED = {"population": {"name": "mixed", "function": 6}}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PRIVATEER_LEDGER", str(tmp_path / "ledger.db"))
    return tmp_path / "populations"


def run_load_population(monkeypatch: pytest.MonkeyPatch, spec: Spec, *options: str) -> dict[str, Any]:
    """Return the population that a load run of an experiment simulates."""
    arguments: dict[str, Any] = {}

    def run(*_: object, **options: Any) -> LoadResult:
        arguments.update(options)
        options["on_start"]()
        return LoadResult()

    monkeypatch.setattr(command, "_fetch_spec", lambda _: spec.without_people())
    monkeypatch.setattr(command, "run_load", run)
    command.main([spec.name, *options])
    return dict(arguments["population"])


def test_load_plays_the_people_of_the_spec_that_was_created(monkeypatch, capsys):
    path = ROOT / "examples" / "miss-shuffle.toml"
    monkeypatch.setattr(experiments, "post", lambda *_: ({}, True))
    monkeypatch.setattr("sys.argv", ["privateer", "create", str(path), "--token", "x"])
    with pytest.raises(SystemExit):
        privateer()
    assert run_load_population(monkeypatch, load_spec(path, [])) == {"name": "mixed", "function": 6}
    err = capsys.readouterr().err
    assert err == (
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
def test_accepted_and_counted_reports_are_shown_separately(result, lines, monkeypatch, capsys):
    monkeypatch.setattr(command, "_fetch_spec", lambda _: make_spec({}))
    monkeypatch.setattr(command, "run_load", lambda *_, **__: result)
    command.main(["test"])
    out = capsys.readouterr().out
    assert all(line in out for line in lines)
    assert "reports counted" not in out


def test_load_says_that_it_does_not_know_the_people_of_a_spec(monkeypatch, capsys):
    assert run_load_population(monkeypatch, make_spec(MIXED)) == {"name": "peaks"}
    assert "peaks, the first that fit: nobody here knows those of its spec" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "people"), [("miss-shuffle", {"name": "mixed", "function": 6}), ("stations", {"name": "linear"})]
)
def test_the_spec_is_looked_up_in_a_folder_if_none_was_created(name, people, monkeypatch, capsys):
    monkeypatch.setenv("PRIVATEER_SPECS", str(ROOT / "examples"))
    spec = load_spec(ROOT / "examples" / f"{name}.toml", [])
    population = run_load_population(monkeypatch, spec)
    assert population == spec.population
    assert people.items() <= population.items()
    assert f"those of {name}.toml" in capsys.readouterr().err


def test_a_folder_without_the_spec_is_named_with_a_remedy_that_works(monkeypatch, capsys, tmp_path):
    """Planted: a spec of the same name with different arms, a damaged spec, and a spec whose people are code."""
    spec = load_spec(ROOT / "examples" / "peaks-shuffle.toml", [])
    text = (ROOT / "examples" / "peaks-shuffle.toml").read_text()
    (tmp_path / "arms.toml").write_text(text.replace("arms = [", 'arms = ["another", '))
    (tmp_path / "damaged.toml").write_text("[experiment")
    (tmp_path / "own.toml").write_text(text.replace('name = "peaks"', 'name = "own"\npath = "os:system"'))
    monkeypatch.setenv("PRIVATEER_SPECS", str(tmp_path))
    assert run_load_population(monkeypatch, spec)
    err = capsys.readouterr().err
    assert "the first that fit: its spec is not in PRIVATEER_SPECS (name the folder of the spec there)" in err
    monkeypatch.setenv("PRIVATEER_SPECS", str(ROOT / "examples"))
    assert run_load_population(monkeypatch, spec) == spec.population
    assert "those of peaks-shuffle.toml" in capsys.readouterr().err


def test_people_who_are_named_are_played(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    store_population(make_spec(MIXED))
    assert run_load_population(monkeypatch, make_spec(MIXED), "--population", "peaks") == {"name": "peaks"}
    assert "peaks, as --population names them" in capsys.readouterr().err
    population = run_load_population(monkeypatch, make_spec(MIXED), "--set", "population.function=3")
    assert population == {"name": "mixed", "function": 3}


def test_another_experiment_of_the_name_has_other_people(folder: Path) -> None:
    store_population(make_spec(MIXED))
    longer = {"experiment.horizon": 12_345, "privacy.epsilon": 2.0}
    assert load_stored_population(make_spec(longer)) == MIXED["population"]
    assert load_stored_population(make_spec({"experiment.arms": ["x", "y"]})) is None
    assert load_stored_population(make_spec({"context.features": {"z": {"low": 0.0, "high": 1.0}}})) is None
    store_population(make_spec({}))
    assert list(folder.iterdir()) == []


def test_people_stay_when_an_arm_is_added_or_retired(monkeypatch: pytest.MonkeyPatch) -> None:
    store_population(make_spec(MIXED))
    spec = retire_arm(add_arm(make_spec({}), "another"), "arm-0")
    assert load_stored_population(spec) == MIXED["population"]
    assert run_load_population(monkeypatch, spec) == MIXED["population"]


def test_files_are_found_from_any_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    store_population(make_spec({"population": {"name": "adult", "path": "a.csv, b/c.csv"}}))
    monkeypatch.chdir("/")
    assert load_stored_population(make_spec({})) == {"name": "adult", "path": f"{tmp_path}/a.csv,{tmp_path}/b/c.csv"}


def test_sources_have_people_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [
        {
            "name": "clinic",
            "participants": 500,
            "epsilon": 1.0,
            "shares": [0.5, 0.25, 0.25],
            "population": {"name": "peaks"},
        }
    ]
    store_population(make_spec({**MIXED, "sources": sources}))
    spec = make_spec({"sources": [{key: value for key, value in sources[0].items() if key != "population"}]})
    assert [load_stored_population(spec, cohort) for cohort in ("", "clinic")] == [
        MIXED["population"],
        {"name": "peaks"},
    ]


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff", b"[]"])
def test_a_damaged_file_is_named_with_the_remedy(body: bytes, folder: Path) -> None:
    store_population(make_spec(MIXED))
    [path] = folder.iterdir()
    path.write_bytes(body)
    with pytest.raises(SpecError, match=r"cannot be read.*remove .*test\.json"):
        load_stored_population(make_spec({}))


def test_create_warns_if_the_population_cannot_be_stored(monkeypatch, tmp_path, capsys):
    (tmp_path / "populations").write_text("in the way")
    monkeypatch.setattr(experiments, "post", lambda *_: ({}, True))
    path = ROOT / "examples" / "miss-shuffle.toml"
    monkeypatch.setattr("sys.argv", ["privateer", "create", str(path), "--token", "x"])
    with pytest.raises(SystemExit) as stop:
        privateer()
    captured = capsys.readouterr()
    assert (stop.value.code or 0, captured.out) == (0, "created miss-shuffle\n")
    assert captured.err.startswith("privateer: warning: the spec's population is not kept")
    assert captured.err.count("\n") == 1

"""The command line prints figures as JSON, and a single line with an exit code for each error."""

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import httpx
import pytest
import typer

from privateer_core.errors import Conflict, NotFound, Unavailable
from privateer_core.wire.problem import problem_body
from privateer_lab import __main__ as program
from privateer_lab.cli.command_line import COMMANDS, main
from tests.documents import imports
from tests.support.doctor import free_ports

ROOT = Path(__file__).parents[4]
SPEC = str(ROOT / "examples" / "peaks-local.toml")
FREE_PORTS = "free ports"
DPE = str(ROOT / "examples" / "dpe.toml")
SMALL = ("--set", "experiment.horizon=20000", "--set", "actions.count=50", "--set", "privacy.delta=1e-6")


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Run a command, and return its exit code, its output and its errors."""
    with pytest.raises(SystemExit) as stop:
        main([*map(str, arguments)])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return int(stop.value.code or 0), out, err


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Run a command, and return its exit code, and its errors or else its output."""
    code, out, err = run(capsys, *arguments)
    return code, err or out


def test_simulate_prints_figures(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "simulate", SPEC, "--users", "3000", "--seeds", "2", "--jobs", "1", "--json")
    figures = json.loads(out)
    assert code == 0
    assert figures["users"] == 3000
    assert figures["uniform_regret"] == pytest.approx(0.41388 * 3000, rel=0.05)
    for key in (
        "regret_mean",
        "regret_ci95",
        "regret_worst",
        "best_constant_regret",
        "users_per_second",
        "wall_seconds",
    ):
        assert figures[key] > 0


def test_simulate_shows_a_batch_size_only_if_the_promise_depends_on_it(capsys: pytest.CaptureFixture[str]) -> None:
    shuffled = str(ROOT / "examples" / "peaks-shuffle.toml")
    for spec, shows in ((SPEC, False), (shuffled, True)):
        code, out, _ = run(capsys, "simulate", spec, "--users", "3000", "--jobs", "1")
        assert (code, "epsilon" in out) == (0, True)
        for key in ("reports in a batch", "honest share of a batch", "epsilon of a report alone"):
            assert (key in out) == shows


def test_the_same_seed_gives_the_same_run(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [run(capsys, "simulate", SPEC, "--users", "2000", "--jobs", "1", "--json")[1] for _ in range(2)]
    assert json.loads(runs[0])["runs"] == json.loads(runs[1])["runs"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["simulate", "none.toml"], "SPEC: cannot read none.toml"),
        (["simulate", SPEC, "--set", "privacy.epsilon=0"], "privacy.epsilon: "),
        (["simulate", SPEC, "--set", "privacy.epsilon=nan"], "privacy.epsilon: "),
        (["simulate", SPEC, "--set", "privacy.epsilom=1"], "privacy.epsilom: unknown key"),
        (["simulate", SPEC, "--set", "nonsense"], "--set: cannot read"),
        (["simulate", SPEC, "--set", "experiment.arms=['a']"], "experiment.arms: "),
        (["simulate", SPEC, "--set", "population.name=adult"], "population.path: "),
        (["simulate", SPEC, "--users", "0"], "--users"),
        (["list", "--url", "http://127.0.0.1:1"], "--url: no answer"),
        (["demo", "--web", "--users", "3000"], "--users: does nothing with --web"),
        (["demo", "--web", "--keep"], "--keep: does nothing with --web"),
        (["demo", "--web", "--no-keep"], "--keep: does nothing with --web"),
        (["demo", "--web", "--out", "x.html"], "--out: does nothing with --web"),
        (["demo", "--out", "."], "--out: . is a folder"),
        (["create", SPEC, "--token", "x", "--admin-url", "http://127.0.0.1:1"], "--admin-url: no answer"),
        (["list", "--url", "127.0.0.1:8000"], "--url: not a URL"),
        (["list", "--url", "localhost:8000"], "--url: not a URL"),
        (["create", SPEC, "--token", "x", "--admin-url", "127.0.0.1:8002"], "--admin-url: not a URL"),
        (["create", SPEC, "--token", ""], "PRIVATEER_ADMIN_TOKEN: is not set"),
        (["backup", "none", "--token", ""], "PRIVATEER_ADMIN_TOKEN: is not set"),
        (["answer", "x", "--as", "policy", "--version", "0"], "--version"),
        (["up", "--data", "/proc/none", FREE_PORTS], "/proc/none: "),
        (["load"], "NAME"),
        (["load", "x", "--users", "many"], "--users"),
        (["load", "x", "--users", "0"], "--users: must be 1"),
        (["load", "x", "--batch", "2"], "--batch: several people's reports at once need a sender's key"),
        (["load", "x", "--sender-key", SPEC, "--users", "1", "--url", "http://127.0.0.1:1"], "--url: no answer"),
        (["load", "x", "--url", "http://127.0.0.1:1"], "--url: no answer"),
        (["load", "x", "--url", "127.0.0.1:8000"], "--url: not a URL"),
        (["load", "x", "--sender-key", "nokey"], "--sender-key: there is no file nokey"),
    ],
)
def test_an_error_is_a_single_line(capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    if FREE_PORTS in arguments:  # looked for now: by the time of a test others may have taken those of its collection
        arguments = [*arguments[:-1], *free_ports()]
    code, out, err = run(capsys, *arguments)
    assert code == (3 if "no answer" in says else 2)
    assert says in err
    assert len(err.strip().splitlines()) == 1
    assert not out


@pytest.mark.parametrize(
    "text", ["algorithm = 3\nexperiment = 4", "experiment = []\nactions = 1", "algorithm.name = 7"]
)
def test_a_spec_whose_sections_are_none_is_one_line(text, capsys, tmp_path):
    (tmp_path / "spec.toml").write_text(text)
    code, _, err = run(capsys, "simulate", str(tmp_path / "spec.toml"), "--users", "1000")
    assert (code, err.count("\n")) == (2, 1)


def test_create_sends_no_simulated_people(capsys, monkeypatch, tmp_path):
    """Not even the name of a source's file."""
    source = (
        'name = "s"\nparticipants = 100\nepsilon = 1\nshares = [0.5, 0.25, 0.25]\n'
        'population = { name = "adult", path = "x" }'
    )
    (tmp_path / "spec.toml").write_text(f"{Path(SPEC).read_text()}\n[[sources]]\n{source}\n")
    bodies: list[dict[str, object]] = []

    def answer(*_: object, json: dict[str, object], **__: object) -> httpx.Response:
        bodies.append(json)
        return httpx.Response(201, json={"name": "x"})

    monkeypatch.setattr("privateer_lab.services.rest.bounded_request", answer)
    assert run(capsys, "create", str(tmp_path / "spec.toml"), "--token", "t")[0] == 0
    assert bodies[0]["sources"]
    assert "population" not in json.dumps(bodies[0])


@pytest.mark.parametrize(("error", "expected"), [(NotFound("x"), 4), (Unavailable("x"), 3), (Conflict("x"), 2)])
def test_exit_codes_distinguish_missing_experiments_from_unreachable_services(error, expected, capsys, monkeypatch):
    answer = httpx.Response(error.status, content=problem_body(error))
    monkeypatch.setattr("privateer_lab.services.rest.bounded_request", lambda *_, **__: answer)
    assert run(capsys, "answer", "x")[0] == expected


def test_the_list_of_commands_is_the_commands() -> None:
    listed = {name: module for commands in COMMANDS.values() for name, (module, _) in commands.items()}
    for module in set(listed.values()):
        app = typer.Typer()
        import_module(f"privateer_lab.cli.{module}").register(app)
        assert set(typer.main.get_group(app).commands) == {name for name, owner in listed.items() if owner == module}


def test_the_number_of_commands_is_bounded() -> None:
    names = [name for commands in COMMANDS.values() for name in commands]
    assert len(names) <= 25, "what a command shows or changes is a word or an option of another one"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_the_list_of_commands_imports_none_of_their_libraries(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom privateer_lab.cli.command_line import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit:\n    print('modules', *sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    imported = {name.partition(".")[0] for name in process.stdout.rpartition("modules")[2].split()}
    heavy = {"numpy", "scipy", "pydantic", "fastapi", "httpx", "aiohttp", "joblib", "matplotlib", "msgspec", "pyarrow"}
    assert "typer" in imported
    assert not imported & {*heavy, "privateer_server", "privateer_client", "privateer_papers"}


LIGHT = ("list", "answer", "backup", "doctor", "log", "token", "up", "demo")
"""Commands that ask a server, or begin others."""


def test_commands_import_the_listed_packages_alone() -> None:
    listed = json.loads(imports.COMMANDS_LIST.read_text())
    assert imports.command_packages() == listed, "if it has to: python -m tests.documents imports"
    assert {listed[name] for name in LIGHT} == {"httpx rich typer"}


_CODE = """
from privateer_lab.cli.output import print_rows
print_rows("Options", [{"option": "free delivery " * 5, "effect": 0.25, "why": "words " * 10}])
"""


@pytest.mark.parametrize(("columns", "is_within"), [("60", True), ("", False)])
def test_tables_follow_columns_in_a_pipe(columns: str, is_within: bool) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    if columns:
        environment["COLUMNS"] = columns
    run = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=True, env=environment)
    assert (max(map(len, run.stdout.splitlines())) <= 60) == is_within


def test_a_command_whose_library_is_not_installed_says_so(monkeypatch, capsys):
    """Such as joblib, which the environment of the demo lacks."""
    monkeypatch.setitem(sys.modules, "privateer_lab.pages.report", None)
    monkeypatch.setattr(sys, "argv", ["privateer", "answer", "x", "--as", "report"])
    with pytest.raises(ModuleNotFoundError, match="report"):
        program.main()  # a module of ours is a defect
    monkeypatch.undo()
    monkeypatch.delitem(sys.modules, "privateer_lab.pages.report", raising=False)
    monkeypatch.delitem(sys.modules, "privateer_lab.render.policy_pictures", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(sys, "argv", ["privateer", "answer", "x", "--as", "report"])
    with pytest.raises(SystemExit, match="2"):
        program.main()
    assert capsys.readouterr().err == "privateer: matplotlib is not installed (install privateer-lab[workbench])\n"

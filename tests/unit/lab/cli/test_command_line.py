"""The command line: figures as JSON, and one line with exit code 2 for what is wrong."""

import json
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import httpx
import pytest
import typer

from privateer_lab.cli.command_line import COMMANDS, command, main
from tests.support.doctor import free_ports

ROOT = Path(__file__).parents[4]
SPEC = str(ROOT / "examples" / "peaks-local.toml")
DPE = str(ROOT / "examples" / "dpe.toml")
SMALL = ("--set", "experiment.horizon=20000", "--set", "actions.count=50", "--set", "privacy.delta=1e-6")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


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


def test_simulate_says_where_one_option_for_everybody_earns_more(capsys: pytest.CaptureFixture[str]) -> None:
    """Three hundred people at epsilon .5 teach nothing; ten thousand at 8 do. Planted: these have no such warning."""
    said, changes = "less than the best single option would have given them", ("--set", "privacy.epsilon=0.5")
    smooth = str(ROOT / "examples" / "smooth-local.toml")
    runs = ("--seeds", "2", "--jobs", "1", "--json")
    few = ("--users", "300", "--set", "experiment.round_size=100", *changes)
    _, out, _ = run(capsys, "simulate", smooth, *few, *runs)
    (warning,) = [one for one in json.loads(out)["warnings"] if said in one]
    assert warning.startswith("in ")
    _, out, _ = run(capsys, "simulate", SPEC, "--users", "10000", "--set", "privacy.epsilon=8", *runs)
    assert not [one for one in json.loads(out)["warnings"] if said in one]


def test_simulate_shows_a_batch_only_where_the_promise_counts_on_one(capsys: pytest.CaptureFixture[str]) -> None:
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
        (["up", "--data", "/proc/none", *free_ports()], "/proc/none: "),
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
def test_what_is_wrong_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert says in err
    assert len(err.strip().splitlines()) == 1
    assert not out


@pytest.mark.parametrize(
    "text", ["algorithm = 3\nexperiment = 4", "experiment = []\nactions = 1", "algorithm.name = 7"]
)
def test_a_spec_whose_sections_are_none_is_one_line(
    text: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "spec.toml").write_text(text)
    code, _, err = run(capsys, "simulate", str(tmp_path / "spec.toml"), "--users", "1000")
    assert (code, err.count("\n")) == (2, 1)


def test_create_sends_no_simulated_people(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not even the name of a source's file."""
    source = (
        'name = "s"\npeople = 100\nepsilon = 1\nshares = [0.5, 0.25, 0.25]\npopulation = { name = "adult", path = "x" }'
    )
    (tmp_path / "spec.toml").write_text(f"{Path(SPEC).read_text()}\n[[sources]]\n{source}\n")
    sent: list[dict[str, object]] = []

    def answer(*_: object, json: dict[str, object], **__: object) -> httpx.Response:
        sent.append(json)
        return httpx.Response(201, json={"name": "x"})

    monkeypatch.setattr("privateer_lab.services.rest.bounded_request", answer)
    assert run(capsys, "create", str(tmp_path / "spec.toml"), "--token", "t")[0] == 0
    assert sent[0]["sources"]
    assert "population" not in json.dumps(sent[0])


def test_without_its_libraries_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['typer'] = None; from privateer_lab.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "privateer: typer is not installed (install privateer-lab[workbench])\n"


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"privateer {version('privateer-lab')}\n", "")


def test_alone_it_shows_the_way_in_six_commands(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys)
    steps = [line.split("privateer ")[1].split()[0] for line in out.splitlines() if line.strip()[:1].isdigit()]
    assert (code, err) == (0, "")
    assert steps == ["spec-from", "plan", "up", "create", "load", "answer"]


def test_what_takes_long_says_so_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, err = run(capsys, "simulate", SPEC, "--users", "2000", "--jobs", "1")
    assert err == "privateer: simulating 2,000 people, 1 run: a run takes a second to a minute ...\n"
    assert "..." not in out
    assert run(capsys, "simulate", SPEC, "--users", "2000", "--jobs", "1", "--json")[2] == ""


def test_the_list_of_commands_is_the_commands() -> None:
    listed = {name: module for commands in COMMANDS.values() for name, (module, _) in commands.items()}
    for module in set(listed.values()):
        app = typer.Typer()
        import_module(f"privateer_lab.cli.{module}").register(app)
        assert set(typer.main.get_group(app).commands) == {name for name, where in listed.items() if where == module}


GROUPS = ("account", "change", "log", "serve", "token")


def test_there_are_few_commands() -> None:
    names = [name for commands in COMMANDS.values() for name in commands]
    assert len(names) <= 25, "what a command shows or changes is a word or an option of another one"


def test_arguments_are_written_alike_in_all_usages() -> None:
    made = {name: command(name) for names in COMMANDS.values() for name in names}
    made |= {f"{group} {name}": one for group in GROUPS for name, one in made[group].commands.items()}
    arguments = {
        f"{name} {parameter.name}": parameter.metavar or ""
        for name, one in made.items()
        for parameter in one.params
        if parameter.param_type_name == "argument"
    }
    assert arguments["change pause name"] == "NAME"
    stems = {where: written.partition(".")[0] for where, written in arguments.items()}  # of SPEC.toml
    assert not {where: stem for where, stem in stems.items() if not stem.isupper()}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_the_list_of_commands_imports_none_of_their_libraries(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom privateer_lab.cli.command_line import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit:\n    print('modules', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    imported = {name.partition(".")[0] for name in done.stdout.rpartition("modules")[2].split()}
    heavy = {"numpy", "scipy", "pydantic", "fastapi", "httpx", "aiohttp", "joblib", "matplotlib", "msgspec", "pyarrow"}
    assert "typer" in imported
    assert not imported & {*heavy, "privateer_server", "privateer_client", "privateer_papers"}

"""What the README tells a newcomer to type works; every setting and problem is documented."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path

import httpx
import pytest

from privateer_core import errors
from privateer_core.algorithms import ALGORITHMS, algorithm, parse_spec
from privateer_lab.cli.command_line import main
from privateer_lab.services.processes import Services, free_port, run_services
from tests.support import onboarding
from tests.support.specs import make_spec

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BIN = Path(sys.executable).parent
SECONDS = 900
"""What a command may take that is typed as a page has it: a plan of many runs, on cores that do other work as well."""


def under(page: str, title: str) -> str:
    """Return the section under a title of a page; empty if it has no such title."""
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def commands() -> list[str]:
    return [line.partition("#")[0].strip() for block in blocks("sh") for line in block.splitlines() if line.strip()]


def execute(line: str, environment: dict[str, str], *, typed: bool = False) -> str:
    """Run a line of the README or a page.

    Parameters
    ----------
    typed
        Whether it starts a process, as a reader does, with the virtual environment's programs wherever that is; each
        imports everything again.
    """
    words = shlex.split(line.replace(".venv/bin/", f"{BIN}/"))
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        environment = environment | {name: value}
    if not typed and Path(words[0]).name == "privateer":
        return in_this_process(words[1:], environment)
    process = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert process.returncode == 0, process.stderr
    return process.stdout


def in_this_process(arguments: list[str], environment: dict[str, str]) -> str:
    """Run a command of ours; what it prints."""
    string_io = StringIO()
    with pytest.MonkeyPatch.context() as patch, chdir(ROOT), redirect_stdout(string_io):
        for name, value in environment.items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit) as stop:
            main(arguments)
    assert stop.value.code == 0, string_io.getvalue()
    return string_io.getvalue()


def test_the_make_targets_exist() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = [line.split()[1] for line in commands() if line.startswith("make ")]
    assert named == ["demo", "test"]
    assert set(named) <= set(targets)


AS_TYPED = pytest.mark.parametrize("people", [4000, pytest.param(None, marks=pytest.mark.nightly)])
"""The commands as they are typed, or by day with no more people than this."""


def with_fewer(line: str, people: int | None) -> str:
    """Limit the participants of a command that runs in this process; a plan is for a single promise."""
    if people is None:
        return line
    if " plan " in line and "--users" not in line:
        line += f" --users {people} --epsilons 1"
    line = re.sub(r"--users (\d+)", lambda users: f"--users {min(int(users[1]), people)}", line)
    return line + " --jobs 1" if re.search(r"privateer (simulate|plan|sweep) ", line) else line


@AS_TYPED
def test_an_experiment_as_the_readme_runs_it(people: int | None, tmp_path: Path) -> None:
    typed = [with_fewer(line, people) for line in commands() if ".venv/bin/privateer" in line]
    assert [re.search(r"privateer (\w+)", line)[1] for line in typed] == ["simulate", "up", "create", "load", "answer"]  # type: ignore[index]
    with run_services(tmp_path, free_port(), free_port(), token="change-me-to-something-random") as at:
        environment = os.environ | {
            "PRIVATEER_URL": at.server,
            "PRIVATEER_ADMIN_URL": at.admin,
            "PRIVATEER_SHUFFLER_URL": at.shuffler,
            "PRIVATEER_SENDER_KEY": str(at.sender_key),
            "PRIVATEER_LEDGER": str(tmp_path / "ledger.db"),
        }
        outputs = [execute(line, environment, typed=people is None) for line in typed if " up" not in line]
        assert "x1" in outputs[-1]
        assert "everybody else" in outputs[-1]
        guide = "".join((ROOT / "docs" / page).read_text() for page in ("sdk.md", "sdk/choices.md"))
        for number, snippet in enumerate(blocks("python") + blocks("python", guide)):
            environment["PRIVATEER_LEDGER"] = str(tmp_path / f"device-{number}.db")
            run_snippet(snippet, at, environment)


def run_snippet(snippet: str, at: Services, environment: dict[str, str]) -> None:
    """Run a snippet of the docs against services elsewhere."""
    code = snippet.replace("http://127.0.0.1:8000", at.server).replace("http://127.0.0.1:8001", at.shuffler)
    process = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if not name.startswith("paper-")])
def test_every_key_of_a_spec_is_documented(name: str) -> None:
    """In the page of the configuration, in the algorithm's section of the reference, or in its own page."""
    page = ROOT / "docs" / f"{name}.md"
    text = (ROOT / "docs" / "configuration.md").read_text() + (page.read_text() if page.exists() else "")
    text += under((ROOT / "docs" / "reference" / "algorithms.md").read_text(), f"`{name}`")
    for section, field in algorithm(name).spec.model_fields.items():
        for key in getattr(field.annotation, "model_fields", {}):
            assert f"`{section}.{key}" in text or f"`{key}`" in text or f"`.{key}`" in text, f"{section}.{key}"


def test_every_problem_is_documented() -> None:
    text = (ROOT / "docs" / "problems.md").read_text()
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.PrivateerError)
    ]
    assert not [kind.slug for kind in kinds if f"`{kind.slug}`" not in text]


@pytest.mark.parametrize("page", ["accounting.md", "bandit.md"])
def test_the_pages_snippets_and_commands_work(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    for snippet in blocks("python", text):
        process = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True, timeout=60)
        assert process.returncode == 0, process.stderr
    lines = [line for block in blocks("sh", text) for line in block.splitlines()]
    assert lines
    for line in lines:
        assert execute(f".venv/bin/{with_fewer(line, 20_000)}", dict(os.environ))


@AS_TYPED
@pytest.mark.nightly
@pytest.mark.parametrize("page", ["simulation.md", "spec-from.md"])
def test_the_simulation_pages_commands_work(page: str, people: int | None, tmp_path: Path) -> None:
    log = onboarding.people(people or 50_000).write(tmp_path / "log.csv")
    for block in blocks("sh", (ROOT / "docs" / page).read_text()):
        for line in block.splitlines():
            typed = with_fewer(line, people).replace("--out ", f"--out {tmp_path}/").replace(" log.csv", f" {log}")
            output = execute(typed, dict(os.environ), typed=people is None)
            assert output or " --out " in line


def test_a_source_as_its_page_has_it(tmp_path: Path) -> None:
    """The page's section of a spec, and its snippet, through the services."""
    page = (ROOT / "docs" / "sources.md").read_text()
    spec = make_spec({"experiment.name": "clinic-trial", "experiment.arms": ["arm-0", "arm-1", "arm-2"]}).model_dump()
    data = spec | tomllib.loads(blocks("toml", page)[0])
    with run_services(tmp_path, free_port(), free_port()) as at:
        body = parse_spec(data).model_dump(mode="json", exclude_none=True)
        headers = {"Authorization": f"Bearer {at.token}"}
        assert httpx.post(f"{at.admin}/experiments", json=body, headers=headers, timeout=60).status_code == 201
        run_snippet(blocks("python", page)[0], at, os.environ | {"PRIVATEER_LEDGER": str(tmp_path / "ledger.db")})
        assert httpx.get(f"{at.server}/experiments/clinic-trial").json()["received"] == 1

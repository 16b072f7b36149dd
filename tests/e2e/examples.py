"""Creates every example on the composed services, and has its own people take part: ``make examples``, by night.

The services begin as they are shipped. Examples that they refuse are created after a restart with the settings that the
refusal names. It prints a row for each example and the sentence of its answer, and exits with 1 if one was refused for
another reason, was played by other people, lost reports, or has no answer.

EXAMPLES_ONLY names some examples, EXAMPLES_USERS says how many people one has, unless its first round asks more, and
PRIVATEER_ADULT names the census' file, without which nobody plays some. The longest is dpe: ten minutes, since each of
3,000 people sends 4,800 messages.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any, Final

import httpx

ROOT: Final = Path(__file__).parents[2]
PRIVATEER: Final = str(ROOT / ".venv/bin/privateer")
COMPOSE: Final = ("docker-compose", "-p", "privateer-examples", "--profile", "load")
PORTS: Final = {"SERVER_PORT": "18500", "SHUFFLER_PORT": "18501", "ADMIN_PORT": "18502", "SHUFFLER_ADMIN_PORT": "18503"}
AT: Final = {"URL": "18500", "SHUFFLER_URL": "18501", "ADMIN_URL": "18502", "SHUFFLER_ADMIN_URL": "18503"}
SETTING: Final = re.compile(r"(PRIVATEER_\w+)=(\d+)(?= at the| and PRIV)")
USERS: Final = int(os.environ.get("EXAMPLES_USERS", "3000"))
READY_SECONDS: Final = 120


def run(*command: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, env=os.environ | env, capture_output=True, text=True)


def copy_examples_with_data(folder: Path) -> Path:
    """Copy the examples and the census' files into a folder that containers can read."""
    copied = Path(shutil.copytree(ROOT / "examples", folder / "examples"))
    for adult_file in filter(None, os.environ.get("PRIVATEER_ADULT", "").split(",")):
        for path in Path(adult_file).parent.glob("adult.*.gz"):
            shutil.copy(path, copied)
    for path in (folder, copied, *copied.iterdir()):
        path.chmod(0o755)
    return copied


def start(env: dict[str, str]) -> None:
    """Start both services with these settings, on the data that they have."""
    started = run(*COMPOSE, "up", "-d", "server", "shuffler", env=env)
    if started.returncode:
        sys.exit(started.stderr)
    transport = httpx.HTTPTransport(retries=0)
    with httpx.Client(transport=transport, timeout=2) as client:
        for port in (PORTS["SERVER_PORT"], PORTS["SHUFFLER_PORT"]):
            for _ in range(READY_SECONDS):
                try:
                    if client.get(f"http://127.0.0.1:{port}/readyz").is_success:
                        break
                except httpx.HTTPError:
                    pass
                subprocess.run(["sleep", "1"], check=True)
            else:
                sys.exit(f"nothing is ready at port {port}")


def create(path: Path, env: dict[str, str]) -> str:
    """Create an experiment; return why it was refused, empty if it was not."""
    process = run(PRIVATEER, "create", str(path), env=env)
    return process.stderr.strip() if process.returncode else ""


def answer(path: Path, env: dict[str, str]) -> tuple[bool, str]:
    """Return whether an experiment has an answer, and its sentence."""
    name = tomllib.loads(path.read_text())["experiment"]["name"]
    process = run(PRIVATEER, "answer", name, "--json", env=env)
    if process.returncode:
        return False, process.stderr.strip()
    return True, json.loads(process.stdout)["conclusion"]["headline"]["sentence"]


def play(path: Path, env: dict[str, str]) -> tuple[bool, str]:
    """Have the people of an example take part; return whether they were its own and nothing was lost, and figures."""
    spec = tomllib.loads(path.read_text())
    page = f"{env['PRIVATEER_URL']}/experiments/{spec['experiment']['name']}"
    n_people = max(USERS, httpx.get(page).raise_for_status().json()["batch_size"])
    people = ["--users", str(n_people)] if spec["algorithm"]["name"] != "phased" else []
    process = run(*COMPOSE, "run", "--rm", "-T", "load", spec["experiment"]["name"], *people, "--json", env=env)
    if process.returncode:
        message = [line for line in process.stderr.splitlines() if line.startswith("privateer: ")][-1]
        return "population.path" in message, message  # the tables of some examples are not in the repository
    figures: dict[str, Any] = json.loads(process.stdout)
    population, used_population = spec["population"], figures["population"]
    is_own = all(used_population[key] == value for key, value in population.items() if key != "path")
    figures["counted"] = figures["people"]["counted"]
    row = ("took_part", "accepted", "counted", "refused", "versions", "seconds")
    is_whole = not figures["refused"] and 0 < figures["counted"] <= figures["accepted"]
    return is_own and is_whole, f"{used_population['name']}: " + ", ".join(f"{key} {figures[key]}" for key in row)


def main() -> None:
    env = {f"PRIVATEER_{name}": port for name, port in PORTS.items()} | {"PRIVATEER_ADMIN_TOKEN": "token-of-examples"}
    env |= {f"PRIVATEER_{name}": f"http://127.0.0.1:{port}" for name, port in AT.items()}
    with tempfile.TemporaryDirectory() as folder:
        specs = copy_examples_with_data(Path(folder))
        env["PRIVATEER_SPECS"] = str(specs)
        try:
            failed = run_examples(sorted(specs.glob("*.toml")), env)
        finally:
            run(*COMPOSE, "down", "--volumes", "--timeout", "5", env=env)
    sys.exit("\n".join(failed) or 0)  # an empty text would be a failure


def run_examples(paths: list[Path], env: dict[str, str]) -> list[str]:
    """Create and play the examples, those last that services as shipped refuse; return a message for each failure."""
    only = os.environ.get("EXAMPLES_ONLY", "").split()
    examples = [path for path in paths if not only or path.stem in only]
    refused, failed, settings = [], [], dict[str, str]()
    start(env)
    for path in examples:
        if message := create(path, env):
            refused.append(path)
            missing_settings = dict(SETTING.findall(message))
            settings |= missing_settings
            print(f"{path.stem:20} refused as shipped, needs {missing_settings}", flush=True)
            failed += [] if missing_settings else [f"{path.stem}: {message}"]
    for wave in ([path for path in examples if path not in refused], refused):
        if wave is refused and refused:
            start(env | settings)
            failed += [f"{path.stem}: {message}" for path in refused if (message := create(path, env))]
        for path in wave:
            for step in (play, answer):
                is_well, message = step(path, env)
                print(f"{path.stem:20} {message}{'' if is_well else ' <- wrong'}", flush=True)
                failed += [] if is_well else [f"{path.stem}: {message}"]
    return failed


if __name__ == "__main__":
    main()

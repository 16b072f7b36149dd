"""``privateer load``: the command line of the load driver."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn
from urllib.parse import quote

from privateer_core.algorithms import parse_spec
from privateer_core.errors import PrivateerError, SpecError, exit_code, printable
from privateer_core.spec.spec import Spec
from privateer_core.wire.keys import load_or_create_key, publish_key
from privateer_core.wire.publication import REPORTS_PER_BODY_MAX
from privateer_lab.environments import default_environment, read_population
from privateer_lab.load.driver import Interruption, LoadResult, run_load
from privateer_lab.load.endpoints import retry_while_busy
from privateer_lab.load.populations import find_population_in_folder, load_stored_population
from privateer_lab.render.words import JSON_FORMAT, format_figure, name_figures
from privateer_lab.services.rest import request_json
from privateer_lab.toml_file import apply_setting

_DEFAULT_BATCH: Final = 100
_SENDER_KEY_PATH: Final = Path("data/sender.key")
"""The path of the key that ``privateer up`` writes."""
_SPECS_VARIABLE: Final = "PRIVATEER_SPECS"
"""Environment variable of a folder of specs, for containers, where ``create`` stores no population."""
_OPTION_RANGES: Final = {
    "users": (1, 10**10),
    "concurrency": (1, 1000),
    "batch": (1, REPORTS_PER_BODY_MAX),
    "seed": (0, 2**63 - 1),
}


class _Parser(argparse.ArgumentParser):
    """An argument parser with errors of one line."""

    def error(self, message: str) -> NoReturn:
        """Print an error, and exit with 2."""
        self.exit(2, f"privateer: {message} (see privateer load --help)\n")


def _make_parser() -> argparse.ArgumentParser:
    """Make the parser of the command's options, with defaults from the environment variables."""
    parser = _Parser(prog="privateer load", description="Have simulated people take part in an experiment over HTTP.")
    add = parser.add_argument
    add("name", metavar="NAME", help="name of the experiment")
    add("--url", default=os.environ.get("PRIVATEER_URL", "http://127.0.0.1:8000"), help="address of the server")
    shuffler = os.environ.get("PRIVATEER_SHUFFLER_URL", "http://127.0.0.1:8001")
    add("--shuffler", default=shuffler, help="address of the shuffler")
    users = "number of people; by default those whom the horizon still asks, or all from whom the experiment draws"
    add("--users", type=int, help=users)
    add("--concurrency", type=int, default=4, help="number of uploads under way at a time")
    batch = f"people in one upload; by default 1, as real devices send, or {_DEFAULT_BATCH} with a sender's key"
    add("--batch", type=int, help=batch)
    add("--sender-key", type=Path, default=_find_sender_key(), help="key whose owner the services trust with a batch")
    issuer = os.environ.get("PRIVATEER_ISSUER")
    add("--issuer", default=issuer, help="address of the issuer of upload tokens; people then send one by one")
    add("--attestation-secrets", type=Path, help="file with the secret that the issuer shares with the backend")
    population = "name of the environment, a TOML file with a [population] section, or module:Class; by default that "
    population += "of the spec that privateer create was given here, else one that fits"
    add("--population", help=population)
    add("--path", help="data file of the population")
    add("--set", action="append", default=[], metavar="population.KEY=VALUE", help="set a key of the population")
    add("--cohort", default="", help="source of these people, who report on arms that they played before")
    add("--seed", type=int, default=0, help="seed of contexts and rewards")
    add("--json", action="store_true", help="print JSON")
    return parser


def _find_sender_key() -> Path | None:
    """Return the key that the environment or ``privateer up`` names; create it if the environment names both halves."""
    named, published = os.environ.get("PRIVATEER_SENDER_KEY"), os.environ.get("PRIVATEER_SENDER_PUBLIC_KEY_FILE")
    if not named:
        return _SENDER_KEY_PATH if _SENDER_KEY_PATH.exists() else None
    if published:
        publish_key(load_or_create_key(Path(named), "PRIVATEER_SENDER_KEY"), Path(published))
    return Path(named)


class LoadPeople(NamedTuple):
    """The population of a load run, and its origin."""

    population: dict[str, Any]
    origin: str

    def __str__(self) -> str:
        """Return the first sentence of a load run."""
        keys = ", ".join(f"{key} = {value}" for key, value in self.population.items() if key != "name")
        return f"simulated people: {self.population.get('name')}{keys and f' ({keys})'}, {self.origin}"


def _find_people(options: argparse.Namespace, spec: Spec) -> LoadPeople:
    """Find the population of ``--population``, ``--path`` and ``--set``; by default that of the spec."""
    if named := options.population:
        origin = f"those of {named}" if named.endswith(".toml") else "as --population names them"
        people = LoadPeople(read_population(named), origin)
    else:
        people = _default_people(spec, options.cohort)
    tables = {"population": dict(people.population)}
    if options.path is not None:
        tables["population"]["path"] = options.path
    for setting in options.set:
        apply_setting(tables, setting)
    return LoadPeople(tables["population"], people.origin)


def _default_people(spec: Spec, cohort: str) -> LoadPeople:
    """Return the population of the spec, if it is stored or in a folder of specs; else the first compatible one."""
    if (stored := load_stored_population(spec, cohort)) is not None:
        return LoadPeople(stored, "those of the spec that privateer create was given here")
    unknown = "nobody here knows those of its spec (name them with --population SPEC.toml)"
    if folder := os.environ.get(_SPECS_VARIABLE):
        if local := find_population_in_folder(spec, Path(folder), cohort):
            return LoadPeople(local[0], f"those of {local[1].name}")
        unknown = f"its spec is not in {_SPECS_VARIABLE} (name the folder of the spec there)"
    return LoadPeople(default_environment(spec), f"the first that fit: {unknown}")


def _complete_options(options: argparse.Namespace) -> argparse.Namespace:
    """Set the sender's key and the batch that follow from other options; refuse values out of range."""
    for name, (low, high) in _OPTION_RANGES.items():
        value = getattr(options, name)
        if value is not None and not low <= value <= high:
            raise SpecError(f"must be {low} to {high}", field=f"--{name}", remedy="choose another number")
    if options.sender_key is not None and not options.sender_key.is_file():
        raise SpecError(f"there is no file {options.sender_key}", field="--sender-key", remedy="name the key's file")
    if options.issuer:
        options.sender_key = None  # tokens replace a trusted sender's key
    if options.batch is None:
        options.batch = _DEFAULT_BATCH if options.sender_key else 1
    if options.batch > 1 and options.sender_key is None:
        detail, remedy = "several people's reports at once need a sender's key", "name one with --sender-key, or give 1"
        raise SpecError(detail, field="--batch", remedy=remedy)
    return options


def main(arguments: list[str] | None = None) -> None:
    """Run the command line of the load driver; exit with the code of an error, or with 130 on Ctrl-C."""
    try:
        options = _complete_options(_make_parser().parse_args(arguments))
        load_people = _find_people(options, _fetch_spec(options))
        result = _run_load(options, load_people)
    except PrivateerError as error:
        print(f"privateer: {printable(str(error))}", file=sys.stderr)
        sys.exit(exit_code(error))
    except KeyboardInterrupt as stop:
        if isinstance(stop, Interruption):
            print("privateer: interrupted; so far:", file=sys.stderr)
            _print_result(stop.result, load_people, options.json)
        sys.exit(130)
    _print_result(result, load_people, options.json)


def _run_load(options: argparse.Namespace, load_people: LoadPeople) -> LoadResult:
    """Run the load, announcing its people on stderr when it starts."""
    args = {name: getattr(options, name) for name in ("users", "concurrency", "batch", "seed", "cohort", "sender_key")}
    args |= {"issuer": options.issuer, "attestation_secret": _read_secret(options.attestation_secrets)}

    def announce() -> None:
        print(f"privateer: {printable(str(load_people))}", file=sys.stderr)
        if not options.json:
            print("privateer: they take part over HTTP: hundreds to thousands a second ...", file=sys.stderr)

    services = options.name, options.url, options.shuffler
    return run_load(*services, population=load_people.population, on_start=announce, **args)


def _read_secret(path: Path | None) -> bytes | None:
    """Read the first secret of a file, as the issuer does; None without a file; refuse a file without secrets."""
    if path is None:
        return None
    try:
        return bytes.fromhex(path.read_text("ascii").split()[0])
    except (OSError, ValueError, IndexError):
        detail, remedy = f"{path.name} holds no secret", "name the file that the issuer was started with"
        raise SpecError(detail, field="--attestation-secrets", remedy=remedy) from None


def _fetch_spec(options: argparse.Namespace) -> Spec:
    """Fetch the spec of the experiment, as its server publishes it."""
    page = f"{options.url.rstrip('/')}/experiments/{quote(options.name, safe='')}"
    spec = retry_while_busy(lambda: request_json("GET", page)).get("spec")
    if not isinstance(spec, dict):
        remedy = "its public port is 8000 unless you changed it"
        raise SpecError("this is not a learning server", field="--url", remedy=remedy)
    return parse_spec(spec)


def _print_result(result: LoadResult, load_people: LoadPeople, as_json: bool) -> None:
    """Print what was counted, as JSON or as lines."""
    figures = result.as_dict()
    if as_json:
        print(json.dumps({"format": JSON_FORMAT, **figures, "population": load_people.population}, indent=2))
        return
    accepted = f"accepted_by_{figures.pop('endpoint')}"  # reports at a shuffler may not be counted yet
    del figures["people"]
    lines = list(name_figures({accepted if key == "accepted" else key: total for key, total in figures.items()}))
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        print(f"{name:{width}}  {format_figure(value) or 'none'}")
    print(result.account.sentence if result.account else "What is counted is not known: the server did not say.")

"""``privateer load``: the command line of the load driver."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn
from urllib.parse import quote

from privateer_core.algorithms import parse_spec
from privateer_core.errors import NotFound, PrivateerError, SpecError, printable
from privateer_core.spec.spec import Spec
from privateer_core.wire.envelope import REPORTS_PER_BODY_MAX
from privateer_core.wire.keys import own_key, publish_key
from privateer_lab.environments import default_environment, population_named
from privateer_lab.figures import named, readable
from privateer_lab.load.driver import Interrupted, run_load
from privateer_lab.load.endpoints import patiently
from privateer_lab.load.populations import kept_people, people_of_file
from privateer_lab.load.result import LoadResult
from privateer_lab.services.rest import ask
from privateer_lab.toml_file import apply_setting

_BATCH: Final = 100
_KEY: Final = Path("data/sender.key")
"""Where ``privateer up`` leaves a key."""
_SPECS: Final = "PRIVATEER_SPECS"
"""Names a folder with specs, where there is no command line that keeps their people: in a container."""
_RANGES: Final = {
    "users": (1, 10**10),
    "concurrency": (1, 1000),
    "batch": (1, REPORTS_PER_BODY_MAX),
    "seed": (0, 2**63 - 1),
}


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and exit with 2."""
        self.exit(2, f"privateer: {message} (see privateer load --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="privateer load", description="Have simulated people take part in an experiment over HTTP.")
    add = parser.add_argument
    add("name", metavar="NAME", help="name of the experiment")
    add("--url", default=os.environ.get("PRIVATEER_URL", "http://127.0.0.1:8000"), help="address of the server")
    shuffler = os.environ.get("PRIVATEER_SHUFFLER", "http://127.0.0.1:8001")
    add("--shuffler", default=shuffler, help="address of the shuffler")
    users = "number of people; by default those whom the horizon still asks, or all from whom the experiment draws"
    add("--users", type=int, help=users)
    add("--concurrency", type=int, default=4, help="number of uploads under way at a time")
    batch = f"people in one upload; by default 1, as real devices send, or {_BATCH} with a sender's key"
    add("--batch", type=int, help=batch)
    add("--sender-key", type=Path, default=_sender_key(), help="key whose owner the services trust with a batch")
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


def _sender_key() -> Path | None:
    """Return the key that the environment names, or that ``privateer up`` left here.

    If the environment also says where its public half belongs, the key is made and published.
    """
    named, published = os.environ.get("PRIVATEER_SENDER_KEY"), os.environ.get("PRIVATEER_SENDER_PUBLIC_KEY_FILE")
    if not named:
        return _KEY if _KEY.exists() else None
    if published:
        publish_key(own_key(Path(named), "PRIVATEER_SENDER_KEY"), Path(published))
    return Path(named)


class LoadPeople(NamedTuple):
    """The population that a load run plays, and where it was found."""

    population: dict[str, Any]
    origin: str

    def __str__(self) -> str:
        """Return the sentence that a load run begins with."""
        keys = ", ".join(f"{key} = {value}" for key, value in self.population.items() if key != "name")
        return f"simulated people: {self.population.get('name')}{keys and f' ({keys})'}, {self.origin}"


def _people(options: argparse.Namespace, spec: Spec) -> LoadPeople:
    """Find the people that ``--population``, ``--path`` and ``--set`` describe; by default those of the spec."""
    people = _named_people(options.population) if options.population else _usual_people(spec, options.cohort)
    tables = {"population": dict(people.population)}
    if options.path is not None:
        tables["population"]["path"] = options.path
    for setting in options.set:
        apply_setting(tables, setting)
    return LoadPeople(tables["population"], people.origin)


def _named_people(named: str) -> LoadPeople:
    """Return the people of ``--population``."""
    origin = f"those of {named}" if named.endswith(".toml") else "as --population names them"
    return LoadPeople(population_named(named), origin)


def _usual_people(spec: Spec, cohort: str) -> LoadPeople:
    """Return the people of the spec, if it was created here or is at hand, and the first that fit otherwise."""
    if (kept := kept_people(spec, cohort)) is not None:
        return LoadPeople(kept, "those of the spec that privateer create was given here")
    unknown = "nobody here knows those of its spec (name them with --population SPEC.toml)"
    if folder := os.environ.get(_SPECS):
        if written := people_of_file(spec, Path(folder), cohort):
            return LoadPeople(written[0], f"those of {written[1].name}")
        unknown = f"its spec is not in {_SPECS} (name the folder of the spec there)"
    return LoadPeople(default_environment(spec), f"the first that fit: {unknown}")


def _checked(options: argparse.Namespace) -> argparse.Namespace:
    for name, (least, most) in _RANGES.items():
        value = getattr(options, name)
        if value is not None and not least <= value <= most:
            raise SpecError(f"must be {least} to {most}", field=f"--{name}", remedy="choose another number")
    if options.sender_key is not None and not options.sender_key.is_file():
        raise SpecError(f"there is no file {options.sender_key}", field="--sender-key", remedy="name the key's file")
    if options.issuer:
        options.sender_key = None  # tokens are for those whom no trusted sender vouches for
    if options.batch is None:
        options.batch = _BATCH if options.sender_key else 1
    if options.batch > 1 and options.sender_key is None:
        detail, remedy = "several people's reports at once need a sender's key", "name one with --sender-key, or give 1"
        raise SpecError(detail, field="--batch", remedy=remedy)
    return options


def main(arguments: list[str] | None = None) -> None:
    """Run the command line of the load driver; exit with 2 on an error of the user's, with 130 on Ctrl-C."""
    try:
        options = _checked(_parser().parse_args(arguments))
        people = _people(options, _spec(options))
        result = _load(options, people)
    except PrivateerError as error:
        print(f"privateer: {printable(str(error))}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as stop:
        if isinstance(stop, Interrupted):
            print("privateer: interrupted; so far:", file=sys.stderr)
            _show(stop.result, people, options.json)
        sys.exit(130)
    _show(result, people, options.json)


def _load(options: argparse.Namespace, people: LoadPeople) -> LoadResult:
    how = {name: getattr(options, name) for name in ("users", "concurrency", "batch", "seed", "cohort", "sender_key")}
    how |= {"issuer": options.issuer, "attestation_secret": _secret(options.attestation_secrets)}

    def begins() -> None:
        print(f"privateer: {printable(str(people))}", file=sys.stderr)
        if not options.json:
            print("privateer: they take part over HTTP: hundreds to thousands a second ...", file=sys.stderr)

    at = options.name, options.url, options.shuffler
    return run_load(*at, population=people.population, begins=begins, **how)


def _secret(path: Path | None) -> bytes | None:
    """Return the first secret of a file, as the issuer reads it."""
    if path is None:
        return None
    try:
        return bytes.fromhex(path.read_text("ascii").split()[0])
    except (OSError, ValueError, IndexError):
        detail, remedy = f"{path.name} holds no secret", "name the file that the issuer was started with"
        raise SpecError(detail, field="--attestation-secrets", remedy=remedy) from None


def _spec(options: argparse.Namespace) -> Spec:
    """Return the spec of the experiment, as its server publishes it."""
    page = f"{options.url.rstrip('/')}/experiments/{quote(options.name, safe='')}"
    spec = patiently(lambda: ask("GET", page)).get("spec")
    if not isinstance(spec, dict):
        remedy = "its public port is 8000 unless you changed it"
        raise NotFound("this is not a learning server", field="--url", remedy=remedy)
    return parse_spec(spec)


def _show(result: LoadResult, people: LoadPeople, as_json: bool) -> None:
    figures = result.as_dict()
    if as_json:
        print(json.dumps({**figures, "population": people.population}, indent=2))
        return
    accepted = f"accepted_by_{figures.pop('endpoint')}"  # what a shuffler accepted may not be counted yet
    del figures["people"]
    for name, value in named({accepted if key == "accepted" else key: one for key, one in figures.items()}):
        print(f"{name:40} {readable(value) or 'none'}")
    print(result.account.sentence if result.account else "What is counted is not known: the server did not say.")

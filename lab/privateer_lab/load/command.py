"""``privateer load``: the command line of the load driver."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import quote

import httpx

from privateer.errors import NotFound, PrivateerError, SpecError, Unavailable
from privateer.tables import apply_setting, read_tables
from privateer.text import printable
from privateer.wire.envelope import REPORTS_PER_BODY_MAX
from privateer.wire.keys import make_signing_key, publish_key, read_signing_key
from privateer_lab.load.endpoint import no_url, read_object
from privateer_lab.load.people import LoadResult
from privateer_lab.load.phases import PhaseResult
from privateer_lab.load.run import Interrupted, run_load, run_phases

_USERS: Final = 10_000
_BATCH: Final = 100
_KEY: Final = Path("data/sender.key")
"""Where ``privateer up`` leaves a key."""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and exit with 2."""
        self.exit(2, f"privateer: {message} (see privateer load --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="privateer load", description="Simulated people over HTTP.")
    parser.add_argument("name", metavar="NAME", help="experiment")
    parser.add_argument("--url", default=os.environ.get("PRIVATEER_URL", "http://127.0.0.1:8000"), help="server")
    shuffler = os.environ.get("PRIVATEER_SHUFFLER", "http://127.0.0.1:8001")
    parser.add_argument("--shuffler", default=shuffler, help="shuffler")
    parser.add_argument("--users", type=int, help="people; 10,000, or all of a phased experiment")
    parser.add_argument("--concurrency", type=int, default=4, help="uploads under way at a time")
    batch = f"people in one upload; default: 1 as real devices do, or {_BATCH} with a sender's key"
    parser.add_argument("--batch", type=int, help=batch)
    parser.add_argument("--sender-key", type=Path, default=_sender_key(), help="key that services trust with a batch")
    parser.add_argument("--population", help="its name, or a TOML file with a population section; peaks, or linear")
    parser.add_argument("--path", help="file of the population, for csv and adult")
    parser.add_argument("--set", action="append", default=[], metavar="population.KEY=VALUE", help="change the section")
    parser.add_argument("--cohort", default="", help="source of these people, who report on arms played before")
    parser.add_argument("--seed", type=int, default=0, help="of contexts and rewards")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _sender_key() -> Path | None:
    """The key that the environment names, made and published if that says where; or what ``privateer up`` left here."""
    named, published = os.environ.get("PRIVATEER_SENDER_KEY"), os.environ.get("PRIVATEER_SENDER_PUBLIC_KEY_FILE")
    if not named:
        return _KEY if _KEY.exists() else None
    if published:
        make_signing_key(Path(named))
        publish_key(read_signing_key(Path(named), "PRIVATEER_SENDER_KEY"), Path(published))
    return Path(named)


def _population(options: argparse.Namespace, usual: str) -> dict[str, Any]:
    """The table that ``--population``, ``--path`` and ``--set`` make."""
    if options.population is not None and options.population.endswith(".toml"):
        tables = read_tables(Path(options.population), [], "--population")
        if "population" not in tables:
            raise SpecError("the file has no population section", field="--population", remedy="add one")
    else:
        tables = {"population": {"name": options.population or usual}}
    if options.path is not None:
        tables["population"]["path"] = options.path
    for setting in options.set:
        apply_setting(tables, setting)
    return dict(tables["population"])


def _checked(options: argparse.Namespace) -> argparse.Namespace:
    for name, value, least, most in (
        ("--users", options.users, 1, 10**10),
        ("--concurrency", options.concurrency, 1, 1000),
        ("--batch", options.batch, 1, REPORTS_PER_BODY_MAX),
        ("--seed", options.seed, 0, 2**63 - 1),
    ):
        if value is not None and not least <= value <= most:
            raise SpecError(f"must be {least} to {most}", field=name, remedy="choose another number")
    if options.sender_key is not None and not options.sender_key.is_file():
        detail = f"there is no file {options.sender_key}"
        raise SpecError(detail, field="--sender-key", remedy="name the key's file")
    if options.batch is None:
        options.batch = _BATCH if options.sender_key else 1
    if options.batch > 1 and options.sender_key is None:
        raise SpecError(
            "several people's reports at once need a sender's key",
            field="--batch",
            remedy="name one with --sender-key, or give --batch 1",
        )
    return options


def main(arguments: list[str] | None = None) -> None:
    """The command line of the load driver; exits with 2 on an error of the user's, 130 on Ctrl-C."""
    try:
        options = _checked(_parser().parse_args(arguments))
        result = _load(options)
    except PrivateerError as error:
        print(f"privateer: {printable(str(error))}", file=sys.stderr)
        sys.exit(2)
    except Interrupted as stop:
        print("privateer: interrupted; so far:", file=sys.stderr)
        _show(stop.result, options.json)
        sys.exit(130)
    except KeyboardInterrupt:
        sys.exit(130)
    _show(result, options.json)


def _load(options: argparse.Namespace) -> LoadResult | PhaseResult:
    where = (options.name, options.url, options.shuffler)
    how = {name: getattr(options, name) for name in ("concurrency", "batch", "seed", "sender_key")}
    if _is_phased(options):
        if options.cohort:
            raise SpecError("a phased experiment has no sources", field="--cohort", remedy="leave it out")
        return run_phases(*where, users=options.users, population=_population(options, "linear"), **how)
    population = _population(options, "peaks")
    return run_load(*where, users=options.users or _USERS, population=population, cohort=options.cohort, **how)


def _is_phased(options: argparse.Namespace) -> bool:
    """What family the experiment is of, by its public facts."""
    answer = _asked(options.url, f"/experiments/{quote(options.name, safe='')}")
    if answer.status_code == httpx.codes.NOT_FOUND and "experiments" in read_object(
        _asked(options.url, "/experiments").content
    ):
        raise NotFound("the server has no such experiment", field="NAME", remedy="privateer list")
    if answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
        raise Unavailable("the server does not tell the experiment", field="--url", remedy="look at its log")
    algorithm = read_object(answer.content).get("algorithm")
    if not answer.is_success or algorithm is None:
        remedy = "its public port is 8000 unless you changed it"
        raise NotFound("this is not a learning server", field="--url", remedy=remedy)
    return bool(algorithm == "phased")


def _asked(server: str, page: str) -> httpx.Response:
    try:
        return httpx.get(f"{server.rstrip('/')}{page}", timeout=10)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        raise no_url("--url") from None
    except httpx.TransportError:
        raise Unavailable("no answer", field="--url", remedy="is the server running?") from None


def _show(result: LoadResult | PhaseResult, as_json: bool) -> None:
    figures = result.as_dict()
    if as_json:
        print(json.dumps(figures, indent=2))
        return
    for name, value in figures.items():
        shown = f"{value:,.4g}" if isinstance(value, float) and abs(value) < 100 else value
        print(f"{name:22} {f'{shown:,.0f}' if isinstance(shown, float) else shown}")

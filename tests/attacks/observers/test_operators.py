"""Metrics, logs and the doctor's output hold nothing that participants send, and no key."""

import base64
import hashlib
import json
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from privateer_client import Client, Ledger
from privateer_core.serving.store.copies import open_view
from privateer_core.serving.store.sqlite import FileKind
from privateer_lab.cli.command_line import main
from privateer_lab.doctor import checkup
from privateer_lab.services.processes import Services, free_port, run_services
from privateer_server.store.schema import STORE_KIND
from privateer_shuffler.pool.round_file import ROUND_DATABASE
from tests.support.devices import EVERYTHING
from tests.support.sealing import body_of, plain_reports, sealed_reports
from tests.support.servers import MSGPACK, SHUFFLED, SMALL
from tests.support.specs import tables

# Metrics, logs and the doctor's words go to dashboards, collectors and tickets: nobody finds there what people send.
#
# Real services are asked for everything that an operator sees, while people and strangers use them, and it is searched
# for all that must not be there, however it is written. Planted leaks are found.


TOKEN = "a-token-that-nobody-may-see"
ARMS = ["heron", "osprey", "plover"]
CONTEXT = {"salinity": 0.123456789, "turbidity": 0.246813579}
REWARD = 0.975318642
SENDER = "127.0.0.77"
"""The address of those who send by hand."""
CENTRAL = {**SMALL, "privacy.model": "central", "privacy.delta": 1e-6}
EXPERIMENTS = {"first": SMALL, "second": SHUFFLED, "third": CENTRAL}
_PREFIX = 8
"""Bytes of a secret by which a part of it is recognized."""


@dataclass
class OperatorView:
    """The texts that operators can read, and the words and bytes that must not occur in them."""

    texts: dict[str, str] = field(default_factory=dict)
    words: set[str] = field(default_factory=set)
    raw: set[bytes] = field(default_factory=set)

    def leaks(self) -> list[str]:
        """Return the names of texts in which a forbidden word or byte string occurs."""
        forbidden = self.words | {spelling for raw in self.raw for spelling in spell_bytes(raw)}
        return [name for name, text in self.texts.items() if any(word.lower() in text.lower() for word in forbidden)]


def spell_bytes(raw: bytes) -> Iterator[str]:
    """How the beginning of some bytes may be written."""
    start = raw[:_PREFIX]
    yield start.hex()
    yield start.hex(" ")
    yield repr(start)[2:-1]
    yield str(list(start))[1:-1]
    yield base64.b64encode(raw[: _PREFIX + 1])[:-2].decode()
    yield base64.urlsafe_b64encode(raw[: _PREFIX + 1])[:-2].decode()


def report_to_all_experiments(ask: httpx.Client, at: Services, folder: Path) -> OperatorView:
    """People report to every experiment, by the SDK and by hand, and strangers send what is wrong."""
    view = OperatorView(words={TOKEN, hashlib.sha256(TOKEN.encode()).hexdigest(), *ARMS, *CONTEXT})
    view.words |= {str(value)[:8] for value in [*CONTEXT.values(), REWARD]}
    headers = {"authorization": f"Bearer {TOKEN}"}
    for number, (name, changes) in enumerate(EXPERIMENTS.items()):
        features = {feature: {"low": 0.0, "high": 1.0} for feature in CONTEXT}
        settings = {"experiment.name": name, "experiment.arms": ARMS, "context.features": features}
        ask.post(f"{at.admin}/experiments", json=tables(changes | settings), headers=headers).raise_for_status()
        body = ask.get(f"{at.server}/experiments/{name}/policy", headers=MSGPACK).content
        address = f"{at.shuffler}/experiments/{name}/reports" if name == "second" else f"{at.server}/reports"
        count = 24 if name == "first" else 18  # the first round closes, the others stay open
        sealed = sealed_reports(body, count, number)
        view.raw |= {report for report in plain_reports(body, count, number) if len(report) >= _PREFIX}
        ledger = Ledger(folder / f"{name}.db")
        with Client(at.server, shuffler=at.shuffler, limits=EVERYTHING, ledger=ledger) as client:
            session = client.join(name)
            assert session.choose(CONTEXT) in ARMS
            session.report(REWARD)
        for sealed_report in [*sealed[:16], sealed[0], sealed[1][:-1], bytes(len(sealed[2])), *sealed[17:]]:
            view.raw |= {sealed_report, sealed_report[-_PREFIX:]}
            ask.post(address, content=body_of(body, [sealed_report]))
        ask.post(f"{at.admin}/experiments/{name}/pause", headers=headers).raise_for_status()
    ask.post(f"{at.server}/reports", content=json.dumps(CONTEXT | {"reward": REWARD}))
    ask.get(f"{at.server}/experiments/{ARMS[0]}/{CONTEXT['salinity']}?reward={REWARD}")
    ask.post(f"{at.admin}/experiments", json={"experiment": {"arms": ARMS, "x": REWARD}}, headers=headers)
    return view


def add_secrets_on_disk(view: OperatorView, data: Path) -> None:
    """Add what is on the disks: keys, ids of reports, sealed reports and fingerprints' keys."""
    for path in (data / "server" / "keys").glob("*.key"):
        view.raw |= {path.read_bytes(), bytes.fromhex(path.stem)}
    for path in [data / "sender.key", *(data / "shuffler").glob("*.key"), *data.rglob("*.pub")]:
        view.raw |= {bytes.fromhex(path.read_text())}
    with open_database(data / "server" / "server.db", STORE_KIND) as database:
        blobs = [row[0] for row in database.execute("SELECT ids FROM report_ids")]
        ids = {blob[start : start + 16] for blob in blobs for start in range(0, len(blob), 16)}
        assert len(ids) == 18
        view.raw |= ids
    (path,) = (data / "shuffler").glob("*.db")
    with open_database(path, ROUND_DATABASE) as database:
        view.raw |= {row[0] for row in database.execute("SELECT sealed FROM place WHERE taken")}
        view.raw |= {row[0] for row in database.execute("SELECT key FROM label")}
    assert len(view.raw) > 100


@contextmanager
def open_database(path: Path, kind: FileKind) -> Iterator[sqlite3.Connection]:
    view = open_view(path, kind)
    assert view is not None
    with closing(view), view.driver() as db:
        yield db


def run_doctor(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit):
        main(["doctor", *arguments])
    return capfd.readouterr().out


def observe_services(folder: Path, capfd: pytest.CaptureFixture[str], *, killed: bool = False) -> OperatorView:
    """Everything that operators see of services that people use, that may be killed, and that are examined."""
    data = folder / "data"
    logs = ""
    elsewhere = httpx.HTTPTransport(local_address=SENDER)
    with run_services(data, free_port(), free_port(), TOKEN) as at, httpx.Client(transport=elsewhere) as ask:
        view = report_to_all_experiments(ask, at, folder)
        add_secrets_on_disk(view, data)
        view.texts["server metrics"] = ask.get(f"{at.admin}/metrics").text
        view.texts["shuffler metrics"] = ask.get(f"{at.shuffler_admin}/metrics").text
        for name in ("server", "shuffler") if killed else ():
            at.processes.kill(name)
            at.processes.start(name)
            at.processes.wait(name)
        logs += capfd.readouterr().err
        urls = (at.server, at.shuffler, at.admin, at.shuffler_admin)
        options = ("--server-port", "--shuffler-port", "--admin-port", "--shuffler-admin-port")
        ports = [part for option, url in zip(options, urls, strict=True) for part in (option, url.rpartition(":")[2])]
        view.texts["doctor, running"] = run_doctor(capfd, "--data", str(data), *ports)
    logs += capfd.readouterr().err
    view.texts["logs"] = logs
    for path in (data / "server" / "keys").iterdir():
        path.chmod(0o644)
    view.texts["doctor, stopped"] = run_doctor(capfd, "--data", str(data), *ports)
    view.texts["doctor, as JSON"] = run_doctor(capfd, "--data", str(data), *ports, "--json")
    next((data / "server" / "keys").iterdir()).write_bytes(b"no key")
    (data / "shuffler" / "shuffler.key").write_text("no key")
    next((data / "shuffler").glob("*.db")).write_bytes(b"no database" * 1000)
    view.texts["doctor, damaged"] = run_doctor(capfd, "--data", str(data), *ports)
    return view


@pytest.mark.parametrize("form", ["text", pytest.param("json", marks=pytest.mark.nightly)])
def test_operators_see_neither_reports_nor_keys(form, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("PRIVATEER_LOG_FORMAT", form)
    view = observe_services(tmp_path, capfd, killed=True)
    assert view.leaks() == []
    addresses = [line for line in view.texts["logs"].splitlines() if "127.0.0." in line]
    assert len(addresses) == 4
    assert all("started" in line and SENDER not in line for line in addresses)  # they listen there
    assert 'privateer_reports_refused_total{reason="malformed-report"}' in view.texts["server metrics"]
    assert "hold no key" in view.texts["doctor, damaged"]
    if form == "json":
        lines = [json.loads(line) for line in view.texts["logs"].splitlines()]
        events = [line["event"] for line in lines if line["level"] == "info" and line["event"] != "request"]
        assert Counter(events) == EVENTS
        requests = [line for line in lines if line["event"] == "request"]
        assert {"/experiments/{name}/pause", "/experiments", "/experiments/{name}/shuffler"} == {
            line["route"] for line in requests
        }
        assert all(set(line) <= KNOWN for line in lines)


EVENTS = {
    "started": 4,
    "recovered after an unclean stop": 2,
    "stopped": 2,
    "experiment created": 3,
    "experiment changed": 3,
    "round closed": 1,
}
KNOWN = {"time", "level", "logger", "event", "error", "method", "route", "status", "seconds", "by"}

KNOWN |= {"version", "data", "public", "private", "signal", "experiment", "change", "round", "reports"}


KNOWN |= {"experiments", "open_rounds", "rounds_published", "rounds_given_up"}


PLANTS = """
import base64, logging

from privateer_server.intake.accumulator import Accumulator
take = Accumulator.take
def telling_ids(self, envelope, opened=None, *more):
    logging.getLogger("privateer.server").error("took %s", [one[:16].hex() for one in opened or ()])
    return take(self, envelope, opened, *more)
Accumulator.take = telling_ids

from privateer_core.serving.http.report_endpoint import UploadEndpoint
announced = UploadEndpoint._read_announcement
def telling_addresses(self, incoming):
    logging.getLogger("privateer.serving").error("from %s", incoming.scope["client"])
    return announced(self, incoming)
UploadEndpoint._read_announcement = telling_addresses

from privateer_server.api.operators import Gauges
refresh = Gauges.refresh
def telling_arms(self):
    refresh(self)
    for one in self._experiments:
        self._version.labels(one.spec.options[0]).set(1)
Gauges.refresh = telling_arms

from privateer_shuffler.metrics import ShufflerMetrics
from privateer_shuffler.pool.pool import Pool
made, begin, hold = [], ShufflerMetrics.__init__, Pool.hold
def noting(self):
    begin(self)
    made.append(self)
def telling_reports(self, sealed, admission=None):
    made[0].refuse({base64.b64encode(one).decode(): 10 for one in sealed})
    return hold(self, sealed, admission)
ShufflerMetrics.__init__, Pool.hold = noting, telling_reports
"""
"""Is run in the services' processes as they start: each plant leaks by one way."""


@pytest.mark.nightly
def test_planted_leaks_are_found(tmp_path, capfd, monkeypatch):
    """The doctor's is to name files as they are: a round's key by its public half."""
    (tmp_path / "plant").mkdir()
    (tmp_path / "plant" / "sitecustomize.py").write_text(PLANTS)
    monkeypatch.setenv("PYTHONPATH", ":".join([str(tmp_path / "plant"), *filter(None, sys.path)]))
    monkeypatch.setattr(checkup, "display_name", lambda path: path.name)
    view = observe_services(tmp_path, capfd)
    leaks = {"logs", "server metrics", "shuffler metrics", "doctor, stopped", "doctor, as JSON", "doctor, damaged"}
    assert set(view.leaks()) == leaks == set(view.texts) - {"doctor, running"}
    assert f"from ('{SENDER}'" in view.texts["logs"]

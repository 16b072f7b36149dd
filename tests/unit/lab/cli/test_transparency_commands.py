"""``privateer log key`` and ``privateer log check``: a log that holds, and evidence where it does not."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from privateer_core.wire.publication import digest
from privateer_core.wire.transparency_log import Entry, Head
from privateer_lab.audit.transparency_log import LogContradiction, LogSource, audit_log, check_same_log
from privateer_lab.services.processes import Services, free_port, run_services
from tests.support.notary import Notary
from tests.support.publications import published
from tests.support.sealing import body_of, sealed_reports
from tests.support.servers import MSGPACK, SMALL
from tests.support.specs import make_spec, tables
from tests.unit.lab.cli.test_command_line import call

URL = "http://server"


class Scripted:
    """A server with a log; ``lie`` changes its answers."""

    def __init__(self, notary: Notary | None = None) -> None:
        self.notary = notary or Notary()
        self.publications: dict[int, bytes] = {}
        self.lie: Any = None

    def publish(self, count: int = 1) -> None:
        for _ in range(count):
            version = len(self.publications) + 1
            self.publications[version] = published(make_spec(), version=version)
            self.notary.sign(self.publications[version])

    def __call__(self, request: httpx.Request) -> httpx.Response:
        answer = self.honest(request)
        return self.lie(request, answer) if self.lie else answer

    def honest(self, request: httpx.Request) -> httpx.Response:
        params, path = request.url.params, request.url.path
        if path == "/log/key":
            return httpx.Response(200, json={"key": self.notary.key})
        if path == "/log/head":
            return httpx.Response(200, text=self.notary.head().signed)
        if path == "/log/entries":
            chosen = self.notary.entries[int(params["start"]) : int(params["end"])][:7]
            listed = [
                {"experiment": row.experiment, "version": row.version, "digest": row.digest.hex()} for row in chosen
            ]
            return httpx.Response(200, json={"entries": listed})
        if path == "/log/consistency":
            return httpx.Response(
                200, json={"hashes": self.notary.consistency(int(params["first"]), int(params["second"]))}
            )
        body = self.publications.get(int(path.rpartition("/")[2]))
        if body is None:
            return httpx.Response(404)
        signed = {"privateer-signed": self.notary.identity.signature_header(digest(body))}
        return httpx.Response(200, content=body, headers=signed)

    @property
    def source(self) -> LogSource:
        return LogSource(URL, httpx.Client(transport=httpx.MockTransport(self)))


def test_a_consistent_log_passes_the_audit() -> None:
    server = Scripted()
    server.publish(20)
    state, summary = audit_log(server.source, None, None)
    assert (summary.size, summary.entries, summary.read, summary.unserved) == (20, 20, 20, 0)
    server.publish(3)
    del server.publications[22]
    state, summary = audit_log(server.source, bytes.fromhex(server.notary.key), state)
    assert (summary.size, summary.entries, summary.read, summary.unserved) == (23, 3, 2, 1)
    assert state.versions == {"test": 23}
    for size in (1, 20, 23):
        assert check_same_log(server.source, state, server.notary.head(size).signed).size == size
    before = msgspec.structs.replace(state, head=server.notary.head(20).signed)
    assert check_same_log(server.source, before, server.notary.head().signed).size == 23


def audit_after(change: Any) -> str:
    """Return the problem that an audit finds after a change of a server's log."""
    server = Scripted()
    server.publish(9)
    state, _ = audit_log(server.source, None, None)
    server.publish(3)
    change(server)
    with pytest.raises(LogContradiction) as caught:
        audit_log(server.source, None, state)
    assert caught.value.evidence["known"] == state.head
    return caught.value.cause.slug


def another_key(server: Scripted) -> None:
    server.notary = Notary(b"o" * 32)
    server.publications.clear()
    server.publish(12)


def another_log(server: Scripted) -> None:
    server.notary = Notary(origin="privateer/log/0000000000000009")
    server.publications.clear()
    server.publish(12)


def back(server: Scripted) -> None:
    server.notary = Notary()
    server.publications.clear()
    server.publish(8)


def fork_log(server: Scripted) -> None:
    server.notary = Notary()
    server.notary.enter(Entry("secret", 1, bytes(32)))
    server.publications.clear()
    server.publish(12)


def enter_version_twice(server: Scripted) -> None:
    server.notary.enter(Entry("test", 12, bytes(32)))


def another_publication(server: Scripted) -> None:
    server.publications[11] = published(make_spec({"privacy.epsilon": 0.5}), version=11)


def other_entries(server: Scripted) -> None:
    def lie(request: httpx.Request, answer: httpx.Response) -> httpx.Response:
        if request.url.path != "/log/entries":
            return answer
        entries = answer.json()["entries"]
        return httpx.Response(200, json={"entries": [entry | {"version": entry["version"] + 50} for entry in entries]})

    server.lie = lie


def no_entries(server: Scripted) -> None:
    server.lie = lambda request, answer: httpx.Response(200, json={}) if "entries" in request.url.path else answer


@pytest.mark.parametrize(
    ("change", "slug"),
    [
        (another_key, "signature-invalid"),
        (another_log, "key-changed"),
        (back, "log-rollback"),
        (fork_log, "log-forked"),
        (enter_version_twice, "proof-invalid"),
        (another_publication, "proof-invalid"),
        (other_entries, "proof-invalid"),
        (no_entries, "proof-invalid"),
    ],
)
def test_every_contradiction_has_its_name(change: Any, slug: str) -> None:
    assert audit_after(change) == slug


def test_a_head_of_a_second_log_is_evidence() -> None:
    """The server showed an auditor a second log, whose heads are signed by the same key."""
    server, scripted = Scripted(), Scripted()
    server.publish(9)
    state, _ = audit_log(server.source, None, None)
    fork_log(scripted)
    for size in (4, 9, 12):
        with pytest.raises(LogContradiction) as caught:
            check_same_log(server.source, state, scripted.notary.head(size).signed)
        assert caught.value.evidence["problem"] == "log-forked"
        heads = [Head.verify(caught.value.evidence[name], bytes.fromhex(state.key)) for name in ("known", "head")]
        assert heads[0].origin == heads[1].origin
    with pytest.raises(LogContradiction, match="not signed"):
        check_same_log(server.source, state, Notary(b"o" * 32).head().signed)


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with run_services(tmp_path_factory.mktemp("services"), free_port(), free_port()) as services:
        headers = {"authorization": f"Bearer {services.token}"}
        httpx.post(f"{services.admin}/experiments", json=tables(SMALL), headers=headers).raise_for_status()
        first = httpx.get(f"{services.server}/experiments/test/policy", headers=MSGPACK).content
        for sealed_report in sealed_reports(first, 20):
            httpx.post(f"{services.server}/reports", content=body_of(first, [sealed_report])).raise_for_status()
        yield services


def test_log_commands(at: Services, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = httpx.get(f"{at.server}/log/key").json()["key"]
    assert key in call(capsys, "log", "key", "--url", at.server)[1]
    data = at.sender_key.parent / "server"
    assert key in call(capsys, "log", "key", "--data", str(data))[1]
    assert key in call(capsys, "log", "key", "--data", str(data / "identity.key"))[1]
    assert key in call(capsys, "log", "key", "--data", str(data.parent))[1]
    for source in (("--url", at.server), ("--data", str(data))):
        document = json.loads(call(capsys, "log", "key", *source, "--json")[1])
        assert document["key"] == key
        assert document["fingerprint"] == hashlib.sha256(bytes.fromhex(key)).hexdigest()
    state, evidence, head = tmp_path / "state.json", tmp_path / "evidence.json", tmp_path / "head"
    check = ("log", "check", at.server, "--state", str(state), "--evidence", str(evidence))
    code, output = call(capsys, *check, "--server-key", key)
    assert (code, "the log holds" in output) == (0, True)
    head.write_text(httpx.get(f"{at.server}/log/head").text)
    assert call(capsys, *check, "--against", str(head), "--against", at.admin)[0] == 0
    auditor_state = tmp_path / "audit-log.json"
    assert call(capsys, "log", "check", at.server, "--state", str(auditor_state))[0] == 0
    assert call(capsys, *check, "--against", str(auditor_state))[0] == 0
    code, output = call(capsys, *check, "--against", "README.md")
    assert (code, "another auditor's audit-log.json" in output) == (2, True)
    assert (code, "--against: README.md is not the head of a log" in output) == (2, True)
    code, output = call(capsys, *check, "--against", at.shuffler)
    assert (code, "--against: not the answer of a learning server" in output) == (3, True)
    for arguments in (
        ("log", "key", "--url", at.shuffler),
        ("log", "check", at.shuffler, "--state", str(tmp_path / "new")),
    ):
        code, output = call(capsys, *arguments)
        assert (code, "not the answer of a learning server" in output) == (3, True)
    assert not evidence.exists()
    other = Notary()
    other.enter(Entry("test", 1, bytes(32)))
    head.write_text(other.head().signed)
    code, output = call(capsys, *check, "--against", str(head))
    assert (code, str(evidence) in output) == (1, True)
    assert json.loads(evidence.read_text())["head"] == other.head().signed
    auditor_state.write_text(json.dumps(json.loads(auditor_state.read_text()) | {"head": other.head().signed}))
    assert call(capsys, *check, "--against", str(auditor_state))[0] == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("log", "check", "http://127.0.0.1:9"), "no answer"),
        (("log", "check", "nowhere"), "no answer"),
        (("log", "check", "http://127.0.0.1:9", "--server-key", "short"), "64 hexadecimal digits"),
        (("log", "check", "http://127.0.0.1:9", "--server-key", f"{'a' * 64},{'b' * 64}"), "more than one"),
        (("log", "check", "http://127.0.0.1:9", "--state", "README.md"), "not the state"),
        (("log", "key", "--url", "http://127.0.0.1:9"), "--url: no answer"),
        (("log", "key", "--data", "/nowhere"), "/nowhere is not there, or has no identity.key"),
        (("log", "key", "--data", "docs"), "docs is not there, or has no identity.key"),
        (("log", "key", "--data", "README.md"), "holds no key"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], error: str) -> None:
    code, output = call(capsys, *arguments)
    assert (code, output.count("\n"), error in output) == (3 if "no answer" in error else 2, 1, True), output

"""Operators' tokens with names, scopes and expiries, in a file that a running server follows."""

import hashlib
import hmac
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_core.errors import SpecError
from privateer_core.serving.logs import JsonFormatter
from privateer_server import admin_tokens
from privateer_server.admin_tokens import AdminTokens, Scope, TokenFile, create_token, token_digest
from privateer_server.app import create_app
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.clocks import Hands
from tests.support.servers import SMALL, assert_problem
from tests.support.specs import tables

START = 1_790_000_000.0
LATER = START + 1000.0
ROUTES: dict[tuple[str, str], Scope] = {
    ("POST", "/experiments"): Scope.CHANGE,
    ("POST", "/experiments/test/pause"): Scope.CHANGE,
    ("POST", "/experiments/test/clone"): Scope.CHANGE,
    ("POST", "/experiments/test/warm-start"): Scope.CHANGE,
    ("DELETE", "/experiments/test/shuffler"): Scope.CHANGE,
    ("GET", "/experiments/test/log"): Scope.READ,
    ("GET", "/experiments/test/export"): Scope.READ,
    ("GET", "/backup"): Scope.BACKUP,
    ("DELETE", "/experiments/test"): Scope.DELETE,
}
BODIES: dict[str, Any] = {"/experiments": tables(SMALL), "/experiments/test/clone": {"name": "another"}}


class Desk:
    """A server with a file of tokens, and an operator who edits it."""

    def __init__(self, client: httpx.AsyncClient, file: Path, clock: Hands) -> None:
        self.client, self.file, self.clock = client, file, clock

    def issue(self, name: str, *scopes: Scope, expires: float = LATER) -> dict[str, str]:
        """Add a token to the file, and return the header that bears it."""
        secret, token = create_token(name, scopes, expires)
        with self.file.open("a") as file:
            file.write(token.to_line() + "\n")
        return {"authorization": f"Bearer {secret}"}

    async def ask(self, method: str, path: str, headers: dict[str, str]) -> httpx.Response:
        return await self.client.request(method, path, headers=headers, json=BODIES.get(path))


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    file, clock = tmp_path / "tokens", Hands()
    clock.time = START
    file.write_text("# operators\n\n")
    async with serving(create_app(ServerSettings(data=tmp_path / "data", admin_tokens=file), clock)) as client:
        yield Desk(client, file, clock)


async def test_every_route_asks_for_its_scope_and_names_the_one_that_is_missing(desk: Desk) -> None:
    for (method, path), scope in ROUTES.items():
        others = desk.issue("others", *(other_scope for other_scope in Scope if other_scope != scope))
        refused = await desk.ask(method, path, others)
        problem = assert_problem(refused, 403, "scope-missing")
        assert problem["detail"] == f"the admin token others does not have the scope {scope}"
        assert refused.headers["www-authenticate"] == f'Bearer error="insufficient_scope", scope="{scope}"'
    for (method, path), scope in ROUTES.items():
        answer = await desk.ask(method, path, desk.issue("own", scope))
        # A warm start needs a body, which is looked at after the token.
        assert answer.status_code in ((400,) if path.endswith("warm-start") else (200, 201)), (path, answer.text)


async def test_the_tested_routes_are_all_routes_with_a_token(desk: Desk) -> None:
    document = (await desk.client.get("/openapi.json")).json()
    guarded = {
        (method.upper(), path.replace("{name}", "test"))
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if operation.get("security")
    }
    holds = {("POST", f"/experiments/test/{name}") for name in ("resume", "stop", "extend", "retire-arm", "add-arm")}
    assert guarded == ROUTES.keys() | holds


async def test_the_refusal_of_an_expired_token_names_its_owner(desk: Desk) -> None:
    alice = desk.issue("alice", Scope.CHANGE)
    assert (await desk.ask("POST", "/experiments", alice)).status_code == 201
    desk.clock.time = LATER
    problem = assert_problem(await desk.ask("POST", "/experiments", alice), 401, "admin-token-expired")
    assert problem["detail"] == "the admin token alice expired at 2026-09-21T14:30:00Z"
    assert "privateer token new alice" in problem["remedy"]


async def test_the_file_may_change_while_the_server_runs(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    first = desk.issue("alice", Scope.CHANGE)
    assert (await desk.ask("POST", "/experiments", first)).status_code == 201
    second = desk.issue("alice", Scope.CHANGE)  # both hold while one replaces the other
    assert [(await desk.ask("POST", "/experiments", token)).status_code for token in (first, second)] == [200, 200]
    lines = desk.file.read_text().splitlines()
    desk.file.write_text(f"{lines[-1]}\nbob change soon {'0' * 64}\n")
    assert_problem(await desk.ask("POST", "/experiments", first), 401, "unauthorized")
    assert (await desk.ask("POST", "/experiments", second)).status_code == 200
    warned = [record.getMessage() for record in caplog.records if record.name == "privateer.admin"]
    assert warned.pop() == "operator refused"
    assert warned == ["tokens: line 2 needs a time in UTC, such as 2027-01-31T00:00:00Z; it admits nobody"]
    desk.file.unlink()
    assert_problem(await desk.ask("POST", "/experiments", second), 401, "unauthorized")


async def test_the_log_of_changes_names_the_operator(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    root = desk.issue("root", *Scope)
    for method, path in [("POST", "/experiments"), ("POST", "/experiments/test/pause"), ("GET", "/backup")]:
        alice = desk.issue("alice", Scope.CHANGE, Scope.BACKUP)
        assert (await desk.ask(method, path, alice)).status_code in (200, 201)
    alice = desk.issue("alice", Scope.CHANGE)
    operator = f"alice {hashlib.sha256(alice['authorization'].split()[1].encode()).hexdigest()[:8]}"
    await desk.ask("DELETE", "/experiments/test/shuffler", alice)
    changes = (await desk.ask("GET", "/experiments/test/log", root)).json()["changes"]
    assert [entry["action"] for entry in changes] == ["create", "pause", "release-claim"]
    assert all(entry["operator"].startswith("alice ") for entry in changes)
    assert changes[-1]["operator"] == operator
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    requests = [entry for entry in lines if entry["logger"] == "privateer.requests"]
    operators = {(entry["method"], entry["route"]): entry.get("by") for entry in requests}
    assert operators["DELETE", "/experiments/{name}/shuffler"] == operator
    assert all(by.startswith(("alice ", "root ")) for by in operators.values() if by)
    events = [
        (entry["event"], entry.get("change"), entry["by"])
        for entry in lines
        if entry["logger"] in ("privateer.server", "privateer.admin")
    ]
    assert [entry[:2] for entry in events] == [
        ("experiment created", "create"),
        ("experiment changed", "pause"),
        ("backup fetched", None),
        ("experiment changed", "release-claim"),
    ]
    assert all(by.startswith("alice ") for _, _, by in events)
    assert events[-1][2] == operator


def test_all_tokens_are_compared_in_constant_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    created = [create_token(f"operator-{number}", ["read"], LATER) for number in range(5)]
    file = tmp_path / "tokens"
    file.write_text("".join(f"{token.to_line()}\n" for _, token in created))
    compared = list[tuple[bytes, bytes]]()

    class Counting:
        """Stands for the module that compares."""

        @staticmethod
        def compare_digest(digest: bytes, other: bytes) -> bool:
            compared.append((digest, other))
            return hmac.compare_digest(digest, other)

    monkeypatch.setattr(admin_tokens, "hmac", Counting)
    tokens = AdminTokens(token_digest("the-one-with-all-scopes"), file)
    for secret in (created[0][0], created[4][0], "the-one-with-all-scopes"):
        compared.clear()
        tokens.authorize(secret, Scope.READ, START)
        assert [len(other) for _, other in compared] == [32] * 6


def test_the_admin_token_variable_has_all_scopes(tmp_path: Path) -> None:
    tokens = AdminTokens(token_digest("sixteen-or-more-letters"), None)
    for scope in Scope:
        assert tokens.authorize("sixteen-or-more-letters", scope, START).startswith("admin ")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("alice change 2027-01-31T00:00:00Z", "must be NAME SCOPES EXPIRES DIGEST"),
        (f"Alice change 2027-01-31T00:00:00Z {'0' * 64}", "needs a name"),
        (f"admin change 2027-01-31T00:00:00Z {'0' * 64}", "other than admin"),
        (f"alice write 2027-01-31T00:00:00Z {'0' * 64}", "read, change, delete, backup"),
        (f"alice , 2027-01-31T00:00:00Z {'0' * 64}", "read, change, delete, backup"),
        (f"alice change 2027-01-31 {'0' * 64}", "needs a time in UTC"),
        (f"alice change 2027-01-31T00:00:00Z {'0' * 63}", "SHA-256"),
        (f"alice change 2027-01-31T00:00:00Z {'G' * 64}", "SHA-256"),
    ],
)
def test_a_start_names_the_line_of_a_malformed_token(line: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# who may what\n{line}\n")
    with pytest.raises(SpecError, match=r"tokens: line 2 ") as caught:
        create_app(ServerSettings(data=tmp_path / "data", admin_tokens=file))
    assert says in str(caught.value)
    assert (caught.value.field, caught.value.remedy) == ("PRIVATEER_ADMIN_TOKENS", "correct the line, or remove it")
    assert "0" * 63 not in str(caught.value)


def test_a_missing_or_too_large_token_file_ends_the_start(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    for body in (None, b"#" * (1 << 20) + b"\n", b"\xff"):
        if body is not None:
            file.write_bytes(body)
        with pytest.raises(SpecError, match="tokens cannot be read"):
            TokenFile(file).check()

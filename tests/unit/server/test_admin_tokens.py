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
from privateer_server.admin_tokens import AdminTokens, Scope, TokenFile, new_token, token_digest
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
        secret, made = new_token(name, scopes, expires)
        with self.file.open("a") as file:
            file.write(made.line() + "\n")
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
        others = desk.issue("others", *(one for one in Scope if one != scope))
        refused = await desk.ask(method, path, others)
        problem = assert_problem(refused, 403, "scope-missing")
        assert problem["detail"] == f"the admin token others does not have the scope {scope}"
        assert refused.headers["www-authenticate"] == f'Bearer error="insufficient_scope", scope="{scope}"'
    for (method, path), scope in ROUTES.items():
        answer = await desk.ask(method, path, desk.issue("own", scope))
        # A warm start needs a body, which is looked at after the token.
        assert answer.status_code in ((400,) if path.endswith("warm-start") else (200, 201)), (path, answer.text)


async def test_all_routes_with_a_token_are_those_that_are_tested(desk: Desk) -> None:
    document = (await desk.client.get("/openapi.json")).json()
    guarded = {
        (method.upper(), path.replace("{name}", "test"))
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if operation.get("security")
    }
    holds = {("POST", f"/experiments/test/{one}") for one in ("resume", "stop", "extend", "retire-arm", "add-arm")}
    assert guarded == ROUTES.keys() | holds


async def test_an_expired_token_says_so_and_whose_it_was(desk: Desk) -> None:
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
    assert [(await desk.ask("POST", "/experiments", one)).status_code for one in (first, second)] == [200, 200]
    lines = desk.file.read_text().splitlines()
    desk.file.write_text(f"{lines[-1]}\nbob change soon {'0' * 64}\n")
    assert_problem(await desk.ask("POST", "/experiments", first), 401, "unauthorized")
    assert (await desk.ask("POST", "/experiments", second)).status_code == 200
    warned = [record.getMessage() for record in caplog.records if record.name == "privateer.admin"]
    assert warned.pop() == "operator refused"
    assert warned == ["tokens: line 2 needs a time in UTC, such as 2027-01-31T00:00:00Z; it admits nobody"]
    desk.file.unlink()
    assert_problem(await desk.ask("POST", "/experiments", second), 401, "unauthorized")


async def test_the_log_of_changes_says_whose_token_it_was(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    root = desk.issue("root", *Scope)
    for method, path in [("POST", "/experiments"), ("POST", "/experiments/test/pause"), ("GET", "/backup")]:
        alice = desk.issue("alice", Scope.CHANGE, Scope.BACKUP)
        assert (await desk.ask(method, path, alice)).status_code in (200, 201)
    alice = desk.issue("alice", Scope.CHANGE)
    who = f"alice {hashlib.sha256(alice['authorization'].split()[1].encode()).hexdigest()[:8]}"
    await desk.ask("DELETE", "/experiments/test/shuffler", alice)
    changes = (await desk.ask("GET", "/experiments/test/log", root)).json()["changes"]
    assert [one["action"] for one in changes] == ["create", "pause", "release-claim"]
    assert all(one["who"].startswith("alice ") for one in changes)
    assert changes[-1]["who"] == who
    told = [json.loads(JsonFormatter().format(one)) for one in caplog.records]
    requests = {(one["method"], one["route"]): one.get("by") for one in told if one["logger"] == "privateer.requests"}
    assert requests["DELETE", "/experiments/{name}/shuffler"] == who
    assert all(by.startswith(("alice ", "root ")) for by in requests.values() if by)
    ours = [
        (one["event"], one.get("change"), one["by"])
        for one in told
        if one["logger"] in ("privateer.server", "privateer.admin")
    ]
    assert [one[:2] for one in ours] == [
        ("experiment created", "create"),
        ("experiment changed", "pause"),
        ("backup fetched", None),
        ("experiment changed", "release-claim"),
    ]
    assert all(by.startswith("alice ") for _, _, by in ours)
    assert ours[-1][2] == who


def test_all_tokens_are_compared_in_constant_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [new_token(f"operator-{number}", ["read"], LATER) for number in range(5)]
    file = tmp_path / "tokens"
    file.write_text("".join(f"{token.line()}\n" for _, token in made))
    compared = list[tuple[bytes, bytes]]()

    class Counting:
        """Stands for the module that compares."""

        @staticmethod
        def compare_digest(one: bytes, other: bytes) -> bool:
            compared.append((one, other))
            return hmac.compare_digest(one, other)

    monkeypatch.setattr(admin_tokens, "hmac", Counting)
    tokens = AdminTokens(token_digest("the-one-with-all-scopes"), file)
    for secret in (made[0][0], made[4][0], "the-one-with-all-scopes"):
        compared.clear()
        tokens.authorize(secret, Scope.READ, START)
        assert [len(other) for _, other in compared] == [32] * 6


def test_the_variable_of_before_is_a_token_with_all_scopes(tmp_path: Path) -> None:
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
def test_a_start_names_the_line_that_is_no_token(line: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# who may what\n{line}\n")
    with pytest.raises(SpecError, match=r"tokens: line 2 ") as caught:
        create_app(ServerSettings(data=tmp_path / "data", admin_tokens=file))
    assert says in str(caught.value)
    assert (caught.value.field, caught.value.remedy) == ("PRIVATEER_ADMIN_TOKENS", "correct the line, or remove it")
    assert "0" * 63 not in str(caught.value)


def test_a_file_that_is_not_there_or_too_large_ends_the_start(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    for body in (None, b"#" * (1 << 20) + b"\n", b"\xff"):
        if body is not None:
            file.write_bytes(body)
        with pytest.raises(SpecError, match="tokens cannot be read"):
            TokenFile(file).check()

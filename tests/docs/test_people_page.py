"""The snippets of the page about many people decide for several, and report once for each."""

import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest

import privateer_client
from privateer_core.algorithms import parse_spec
from tests.support.devices import EVERYTHING
from tests.support.experiments import Server
from tests.support.notary import notarized
from tests.support.publications import published

_PAGE = Path("docs/sdk/people.md").read_text()
_SPEC = {
    "experiment": {"name": "peaks-shuffle", "arms": ["left", "middle", "right"], "horizon": 1000, "round_size": 100},
    "context": {"features": {"x1": {"low": 0.0, "high": 1.0}, "x2": {"low": 0.0, "high": 1.0}}},
    "privacy": {"model": "local", "epsilon": 4.0},
    "algorithm": {"name": "partition"},
}
_ARMS = {"left", "middle", "right"}


class FakeFlask:
    """What the recipe needs of Flask, which the tests do not install."""

    def __init__(self, _: str) -> None:
        self.views: dict[str, Callable[..., Any]] = {}
        self.cli = SimpleNamespace(command=lambda name: lambda view: self.views.setdefault(name, view))

    def get(self, path: str) -> Callable[..., Any]:
        return lambda view: self.views.setdefault(path, view)

    post = get


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Server:
    monkeypatch.chdir(tmp_path)
    server = Server(published(parse_spec(_SPEC)))
    for kind in (privateer_client.Client, privateer_client.AsyncClient):

        class Here(kind):  # type: ignore[misc, valid-type]
            def __init__(self, *addresses: Any, **options: Any) -> None:
                super().__init__(*addresses, transport=notarized(server), limits=EVERYTHING, **options)

        monkeypatch.setattr(privateer_client, kind.__name__, Here)
    return server


def snippets() -> list[str]:
    """The code of the page; a machine that is busy may take longer than a page waits."""
    return [
        code.replace('default="middle"', 'default="middle", within=10.0')
        for code in re.findall(r"```python\n(.*?)```", _PAGE, re.DOTALL)
    ]


def test_the_first_snippet_reports_once(server: Server) -> None:
    first, *_ = snippets()
    exec(first, space := {})
    assert space["shown"].fallback is None
    exec(first, space)
    assert len(server.posts) == 1


async def test_the_recipe_for_fastapi_serves_many(server: Server) -> None:
    _, recipe, _ = snippets()
    exec(recipe, space := {})
    app = space["app"]
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://x") as web:
        arms = [
            (await web.get(f"/offer/{user}", params={"x1": 0.3, "x2": 0.9})).json()["arm"]
            for user in range(20)
            for _ in "ab"
        ]
        assert set(arms) <= _ARMS
        assert len(set(arms)) > 1  # all alike by chance: 1e-9
        assert arms[::2] == arms[1::2]
        outcomes = Counter([(await web.post(f"/bought/{user}")).json()["outcome"] for user in range(20) for _ in "ab"])
    assert outcomes == {"accepted": 20, "already-reported": 20}
    assert len(server.posts) == 20


def test_the_recipe_for_flask_serves_many(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flask: Any = ModuleType("flask")
    query = {"x1": "0.3", "x2": "0.9"}
    flask.Flask = FakeFlask
    flask.request = SimpleNamespace(args=SimpleNamespace(get=lambda name, **options: options["type"](query[name])))
    monkeypatch.setitem(sys.modules, "flask", flask)
    exec(snippets()[2], space := dict[str, Any](__name__="app"))
    views = space["app"].views
    arms = [views["/offer/<user>"](f"u{user}")["arm"] for user in range(20)]
    assert set(arms) <= _ARMS
    assert len(set(arms)) > 1
    assert {views["/bought/<user>"](f"u{user}")["outcome"] for user in range(20)} == {"accepted"}
    views["flush"]()
    assert capsys.readouterr().out == "{}\n"
    assert len(server.posts) == 20

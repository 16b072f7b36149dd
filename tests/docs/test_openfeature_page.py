"""The snippet in Python of the page about OpenFeature works as it stands there."""

import re
from pathlib import Path

import pytest
from openfeature import api

import privateer_client
from privateer_core.algorithms import parse_spec
from tests.support.devices import EVERYTHING
from tests.support.experiments import Device, Server
from tests.support.publications import published

_PAGE = Path("docs/openfeature.md").read_text()
_SPEC = {
    "experiment": {"name": "offers", "arms": ["delivery", "discount"], "horizon": 1000, "round_size": 100},
    "context": {"features": {"visits": {"low": 0.0, "high": 20.0}, "premium": {"boolean": True}}},
    "privacy": {"model": "local", "epsilon": 4.0},
    "algorithm": {"name": "partition"},
}


def test_the_snippet_reports_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = Server(published(parse_spec(_SPEC)))
    device = Device(tmp_path, server, limits=EVERYTHING)

    class Client(privateer_client.Client):
        def __init__(self, url: str, shuffler: str) -> None:
            super().__init__(url, shuffler=shuffler, **device._with({}))

    monkeypatch.setattr(privateer_client, "Client", Client)
    [snippet] = re.findall(r"```python\n(.*?)```", _PAGE, re.DOTALL)
    namespace: dict[str, object] = {}
    try:
        # A machine that is busy may take longer than a page waits.
        exec(snippet.replace('"bought": "offers"}', '"bought": "offers"}, within=10.0'), namespace)
    finally:
        api.clear_providers()
    assert namespace["offer"] in ("delivery", "discount")
    assert len(server.posts) == 1

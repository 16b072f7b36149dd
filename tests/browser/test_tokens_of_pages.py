"""A page gets an upload token of an issuer at another origin and spends it. It reads why a report was turned away."""

from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from privateer_core.algorithms import parse_spec
from privateer_lab.services.processes import IssuerProcess, Services, free_port, run_services
from privateer_lab.services.rest import create_experiment

pytestmark = pytest.mark.browser

_SPEC = {
    "experiment": {"name": "offers", "arms": ["delivery", "discount"], "horizon": 1000, "round_size": 100},
    "context": {"features": {"visits": {"low": 0.0, "high": 20.0}}},
    "algorithm": {"name": "partition"},
}
_MODELS: dict[str, dict[str, Any]] = {
    "local": {"model": "local", "epsilon": 4.0},
    "shuffle": {"model": "shuffle", "epsilon": 4.0, "delta": 1e-6, "min_batch": 100, "local_epsilon_max": 4.0},
}
_PERSON = """async ([server, shuffler, issuer, name]) => {
  const { Client, IndexedDbLedger } = await import("/index.js");
  const { Issuer } = await import("/issuer.js");
  const said = [];
  const told = { shuffler, retryTimeout: 0, limits: { epsilon: 4, min_batch: 100 }, warn: (text) => said.push(text) };
  const device = (more) => new Client(server, { ...told, ledger: new IndexedDbLedger(name), ...more });
  const session = await device().join(name);
  session.choose({ visits: 3 });
  const found = [await session.report(1), session.refusal];
  for (let times = 0; times < 2; times++) found.push((await device({ issuer: new Issuer(issuer) }).flush())[name]);
  return [found, said];
}"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def shop() -> Iterator[str]:
    """The origin of a page that has the SDK."""
    files = partial(_Quiet, directory=str(Path("sdk/js/src").resolve()))
    with ThreadingHTTPServer(("127.0.0.1", 0), files) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture(scope="module")
def at(shop: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    folder, issuing = tmp_path_factory.mktemp("services"), IssuerProcess("local,shuffle", free_port())
    with run_services(folder, free_port(), free_port(), quiet=True, issuing=issuing, origins=shop) as services:
        for name, privacy in _MODELS.items():
            spec = _SPEC | {"experiment": _SPEC["experiment"] | {"name": name}, "privacy": privacy}
            create_experiment(services.admin, parse_spec(spec), services.token)
        yield services


@pytest.mark.parametrize("model", _MODELS)
def test_a_page_that_is_refused_for_lack_of_a_token_gets_one_and_is_counted(at, shop, chromium, model):
    context = chromium.new_context()
    page, errors, origins = context.new_page(), list[str](), set[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: origins.add("/".join(request.url.split("/")[:3])))
    page.goto(f"{shop}/")
    statuses, warnings = page.evaluate(_PERSON, [at.server, at.shuffler, at.issuer, model])
    context.close()
    assert (statuses, warnings, errors) == (["pending", "token-missing", "pending", "accepted"], [], [])
    assert at.issuer in origins


def test_a_page_of_another_origin_gets_no_token(at: Services, chromium: Any) -> None:
    """The shuffler hides its response from a page of an unlisted origin, and the issuer refuses the request."""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"{at.issuer}/healthz")
    asks = "([url]) => fetch(url, { method: 'POST', body: 'x' }).then((answer) => answer.status, (error) => error.name)"
    assert page.evaluate(asks, [f"{at.shuffler}/experiments/shuffle/reports"]) == "TypeError"
    assert page.evaluate(asks, [f"{at.issuer}/experiments/shuffle/tokens"]) == 422
    context.close()

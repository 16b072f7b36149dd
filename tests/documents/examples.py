"""Examples in the OpenAPI documents: what services answer to each request that they describe, where it is text."""

import random
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from schemathesis.python.asgi import get_client

from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER, UPLOAD, sign_claim
from privateer_core.wire.keys import load_or_create_key
from privateer_issuer.app import create_app as create_issuer
from privateer_server.app import create_app as create_server
from privateer_server.settings import ServerSettings
from privateer_shuffler.app import create_app as create_shuffler
from privateer_shuffler.resources import KEY_FILE
from privateer_shuffler.settings import ShufflerSettings
from tests.support.sealing import body_of, permuted, sealed_reports
from tests.support.senders import KEY, TRUSTED
from tests.support.servers import ADMIN, MSGPACK, SHUFFLED, SMALL, TOKEN
from tests.support.specs import tables
from tests.support.tokens import issuer_settings

_NAME, _ONCE = "checkout", "checkout-local"
_QUERY = {"experiment": _NAME, "version": 1, "first": 1, "second": 1}
_TEXT_MAX = 600
"""Metrics and streams are longer: the example is their beginning."""
_CHANGES: dict[str, dict[str, Any]] = {
    "pause": {"seconds": 3600},
    "resume": {},
    "extend": {"horizon": 2000},
    "retire-arm": {"arm": "c"},
    "add-arm": {"arm": "d"},
    "clone": {"name": "checkout-again"},
    "stop": {"seconds": 0},
}


class _Service:
    """A service that is asked, and its document, which gets what is sent and answered."""

    def __init__(self, client: Any, document: dict[str, Any]) -> None:
        self._client, self._paths = client, document["paths"]

    def ask(self, method: str, path: str, name: str = _NAME, **request: Any) -> Any:
        """Ask, and keep the body and the answer if they are text."""
        operation = self._paths[path][method]
        url = path.format(name=name, version=1)
        response = self._client.request(method, url, **{"headers": ADMIN, "params": _QUERY, **request})
        media = response.headers["content-type"].partition(";")[0]
        for described, content in operation["responses"][str(response.status_code)]["content"].items():
            if described.partition(";")[0] == media and content["schema"].get("format") != "binary":
                is_json = media.endswith(("json", "directory"))
                content["example"] = response.json() if is_json else response.text[:_TEXT_MAX]
        if "json" in request:
            operation["requestBody"]["content"]["application/json"]["example"] = request["json"]
        return response

    def read(self) -> None:
        """Ask for every page."""
        for path, methods in self._paths.items():
            if "get" in methods:
                self.ask("get", path)


def add_examples(documents: dict[str, dict[str, Any]]) -> None:
    """Have services play an experiment, and write into their documents what they answer."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        data = Path(folder)
        settings = ServerSettings(
            data=data / "server", admin_token=TOKEN, shuffler_keys=(data / "shuffler.pub",), sender_keys=TRUSTED
        )
        app = create_server(settings)
        app.end_waits()  # streams end with their first message
        mixing = ShufflerSettings(
            server_url="http://server",
            data=data / "shuffler",
            public_key_file=data / "shuffler.pub",
            min_batch=2,
            sender_keys=TRUSTED,
        )
        apps: dict[str, Any] = {
            "server": app,
            "shuffler": create_shuffler(mixing, httpx.ASGITransport(app)),
            "issuer": create_issuer(issuer_settings(data, experiments=(_NAME,))),
        }
        services = {
            name: _Service(running.enter_context(get_client(app)), documents[name]) for name, app in apps.items()
        }
        _play(services["server"], services["shuffler"], load_or_create_key(data / "shuffler" / KEY_FILE, "data"))
        services["issuer"].read()


def _play(server: _Service, shuffler: _Service, key: Ed25519PrivateKey) -> None:
    for name, changes in ((_ONCE, SMALL), (_NAME, SHUFFLED)):
        server.ask("post", "/experiments", json=tables({**changes, "experiment.name": name}))
    server.ask("post", "/experiments/{name}/shuffler", headers={SIGNATURE_HEADER: sign_claim(_NAME, key)})
    for name, service, path in ((_ONCE, server, "/reports"), (_NAME, shuffler, "/experiments/{name}/reports")):
        body = _body(server, name, 3)
        service.ask("post", path, data=body, headers={UPLOAD.header: UPLOAD.sign(body, KEY)})
    shuffler.read()
    batch = _body(server, _NAME, 100)
    server.ask("post", "/batches", data=batch, headers={SIGNATURE_HEADER: BATCH.sign(batch, key)})
    server.read()
    export = server.ask("get", "/experiments/{name}/export").json()
    spec = server.ask("get", "/experiments/{name}", _ONCE).json()["spec"]
    server.ask("post", "/experiments/{name}/warm-start", "warmer", json={"spec": spec, "start": export})
    for verb, body in _CHANGES.items():
        server.ask("post", f"/experiments/{{name}}/{verb}", json=body)
    for path in ("/experiments/{name}/shuffler", "/experiments/{name}"):
        server.ask("delete", path)


def _body(server: _Service, name: str, people: int) -> bytes:
    publication = server.ask("get", "/experiments/{name}/policy", name, headers=MSGPACK).content
    reports = sealed_reports(publication, people)
    return body_of(publication, reports if people < 100 else permuted(publication, reports, random.Random(1)))

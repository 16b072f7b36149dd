"""The OpenAPI documents are the services' own, and the services' answers conform to the documents."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import schemathesis
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.python.asgi import get_client, shutdown_lifespans
from schemathesis.specs.openapi.checks import ignored_auth, negative_data_rejection, positive_data_acceptance

from privateer_core.serving.http.listeners import PublicPages
from privateer_core.wire.attestation import HEADER, attest
from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER, UPLOAD, sign_claim
from privateer_core.wire.token import REQUEST_TYPE, Challenge, PendingToken
from privateer_core.wire.token_keys import Directory
from privateer_issuer.app import _is_public as issuer_public
from privateer_issuer.app import create_app as create_issuer
from privateer_server.app import create_app as create_server
from privateer_server.settings import ServerSettings
from privateer_shuffler.app import _is_public as shuffler_public
from privateer_shuffler.app import create_app as create_shuffler
from privateer_shuffler.settings import ShufflerSettings
from tests.documents.openapi import FOLDER, documents, service_documents
from tests.support.sealing import body_of, sealed_reports
from tests.support.senders import KEY, TRUSTED
from tests.support.servers import ADMIN, MSGPACK, SHUFFLED, SMALL, TOKEN
from tests.support.specs import tables
from tests.support.tokens import SECRET, issuer_settings

_MSGPACK = "application/msgpack"
_EXAMPLES, _MANY = 4, 80
_DOCUMENTS = service_documents()
_OPERATIONS = [
    pytest.param(name, path, method, id=f"{name} {method} {path}")
    for name, document in _DOCUMENTS.items()
    for path, methods in document["paths"].items()
    for method in methods
]
_SHUFFLER = Ed25519PrivateKey.from_private_bytes(b"o" * 32)
_DOOMED = st.sampled_from(["doomed", "nobody", "%2e%2e", "\N{SNOWMAN}"])
_NAMES = st.sampled_from(["test", "shuffled"]) | _DOOMED


@schemathesis.serializer(_MSGPACK, REQUEST_TYPE)
def _as_it_is(_: Any, value: Any) -> bytes:
    """Encode what `_body` drew; schemathesis sends further bodies of its own, to see methods refused."""
    return value if isinstance(value, bytes) else msgspec.msgpack.encode(str(value))


class Services:
    """All services, the first two with an experiment each, and the uploads that people have made for them."""

    def __init__(self, folder: Path) -> None:
        (folder / "trusted").mkdir()
        (folder / "trusted" / "one.pub").write_text(_SHUFFLER.public_key().public_bytes_raw().hex())
        trusted = (folder / "trusted",)
        server = create_server(
            ServerSettings(data=folder / "server", admin_token=TOKEN, shuffler_keys=trusted, sender_keys=TRUSTED)
        )
        mixing = ShufflerSettings(
            server_url="http://server",
            data=folder / "shuffler",
            public_key_file=folder / "trusted" / "two.pub",
            min_batch=2,
            sender_keys=TRUSTED,
        )
        shuffler = create_shuffler(mixing, httpx.ASGITransport(server))
        issuing = issuer_settings(
            folder, experiments=("test", "shuffled"), attestation_verifier="hmac", tokens_per_device=2
        )
        apps: dict[str, Any] = {"server": server, "shuffler": shuffler, "issuer": create_issuer(issuing)}
        self.clients = {name: get_client(app).__enter__() for name, app in apps.items()}
        self.schemas = {name: schemathesis.openapi.from_asgi("/openapi.json", app) for name, app in apps.items()}
        self.uploads = {
            "server": self._uploads("test", SMALL) + self._uploads("doomed", SMALL),
            "shuffler": self._uploads("shuffled", SHUFFLED),
            "issuer": self._token_requests(),
        }

    def _token_requests(self) -> list[bytes]:
        directory = Directory.decode(self.clients["issuer"].get("/token-keys").content)
        challenge = Challenge("issuer", "shuffler", "test")
        return [PendingToken.draw(challenge, key).request for key in directory.keys("test") for _ in range(5)]

    def _uploads(self, name: str, changes: dict[str, Any]) -> list[bytes]:
        server = self.clients["server"]
        response = server.post("/experiments", json=tables({**changes, "experiment.name": name}), headers=ADMIN)
        assert response.status_code == 201, response.text
        publication = server.get(f"/experiments/{name}/policy", headers=MSGPACK).content
        sealed = sealed_reports(publication, 4)
        return [body_of(publication, [report]) for report in sealed] + [body_of(publication, sealed)]


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    yield Services(tmp_path_factory.mktemp("services"))
    shutdown_lifespans()


def test_each_service_has_a_document() -> None:
    documents_by_path = {path: json.loads(text) for path, text in documents().items()}
    assert documents_by_path == {FOLDER / f"{name}.json": document for name, document in _DOCUMENTS.items()}
    for name, document in _DOCUMENTS.items():
        assert document["openapi"].startswith("3."), name
        assert len(document["paths"]) >= 5, name


@pytest.mark.parametrize("document", _DOCUMENTS.values(), ids=_DOCUMENTS)
def test_documents_describe_every_answer(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            operation = (method, path)
            assert {"400", "431", "500"} <= set(route["responses"]), operation
            for status, answer in route["responses"].items():
                if status == "304":
                    continue
                assert answer["content"], operation
                assert all(content["schema"] for content in answer["content"].values()), operation
                if status[0] in "45":
                    assert set(answer["content"]) == {"application/problem+json"}, operation
    names = {ref.rsplit("/", 1)[1] for ref in re.findall(r'"\$ref": "([^"]+)"', json.dumps(document))}
    assert names <= set(document["components"]["schemas"])


@pytest.mark.parametrize("document", _DOCUMENTS.values(), ids=_DOCUMENTS)
def test_generators_and_linters_take_documents(document: dict[str, Any]) -> None:
    """Operations have names, and say that they need no key; patterns are ECMAScript's; tuples have a length."""
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[a-z_]+", name) for name in names)
    assert all("security" in operation for operation in operations)
    text = json.dumps(document)
    assert '"items": false' not in text
    assert "allOf" not in text
    assert not re.search(r'"pattern": "[^"]*\\[AZ]', text)


_WITHOUT_EXAMPLE = {
    ("server", "backup"),  # bytes
    ("server", "openings"),
    ("server", "closings"),  # no experiment has shares yet
    ("issuer", "tokens"),
    ("server", "token_keys"),  # there are no tokens
    ("shuffler", "token_keys"),
}


def test_every_route_has_an_example() -> None:
    """It is what a service answers. Schemas are checked where linters are: make interop."""
    without = {
        (name, operation["operationId"])
        for name, document in _DOCUMENTS.items()
        for methods in document["paths"].values()
        for operation in methods.values()
        if not any(
            "example" in content
            for status, answer in operation["responses"].items()
            if status[0] == "2"
            for content in answer["content"].values()
        )
    }
    assert without == _WITHOUT_EXAMPLE


_BAD = ["", "x", "-1", "0", "1", "2", "1e9", str(2**70), "%00", "NaN"]
_PARAMETERS = ["experiment", "version", "block", "size", "first", "second", "start", "end", "wait"]


@pytest.mark.parametrize(("name", "path", "method"), _OPERATIONS)
def test_every_problem_that_is_sent_is_documented(services: Services, name: str, path: str, method: str) -> None:
    """Names that are there, are not, and are another model's; parameters, bodies and tokens that make no sense."""
    responses, statuses = _DOCUMENTS[name]["paths"][path][method]["responses"], list[int]()
    headers = [{}, {"Authorization": "Bearer wrong"}, {**ADMIN, "content-type": "application/json"}]
    for experiment in ("nobody", "test", "shuffled", "doomed", "%2e", "a%0a", "%E2%98%83"):
        filled_path = path.replace("{name}", experiment)
        for bad in _BAD:
            query = "&".join(f"{key}={'test' if key == 'experiment' else bad}" for key in _PARAMETERS)
            url = filled_path.replace("{version}", bad or "x") + ("" if method != "get" else f"?{query}")
            body = {} if method in ("get", "delete") else {"data": b'{"seconds": "%s"}' % bad.encode()}
            is_kept = method != "get" and experiment in ("test", "shuffled", "doomed")
            tried = headers[:2] if is_kept else headers
            for attempt_headers in [tried[len(statuses) % len(tried)]] if "{name}" in path or query else tried:
                answer = services.clients[name].request(method, url, headers=attempt_headers, **body)  # type: ignore[arg-type]
                statuses.append(answer.status_code)
                if answer.status_code < 400 or answer.status_code == 405:
                    continue
                slug = answer.json()["type"].rpartition(":")[2]
                assert f"problem-{slug}" in json.dumps(responses.get(str(answer.status_code))), (url, answer.text)
    assert statuses


@pytest.mark.parametrize("name", _DOCUMENTS)
async def test_strangers_see_the_public_routes_alone(tmp_path: Path, name: str) -> None:
    """All that the document lists is there at the public listener, and nothing else is in it."""
    apps = {
        "server": lambda: create_server(ServerSettings(data=tmp_path / "server", admin_token=TOKEN)).public,
        "shuffler": lambda: PublicPages(
            create_shuffler(
                ShufflerSettings(
                    server_url="http://server", data=tmp_path / "shuffler", public_key_file=tmp_path / "one.pub"
                )
            ),
            shuffler_public,
        ),
        "issuer": lambda: PublicPages(create_issuer(issuer_settings(tmp_path)), issuer_public),
    }
    app = apps[name]()
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        document = (await client.get("/openapi.json")).json()
        routes = {(method, path) for path, methods in document["paths"].items() for method in methods}
        documented = {(method, path) for path, methods in _DOCUMENTS[name]["paths"].items() for method in methods}
        assert routes < documented
        for method, path in documented:
            answer = await client.request(method, path)
            is_there = not (answer.status_code == 404 and "private listener" in answer.text)
            assert is_there == ((method, path) in routes), (method, path, answer.text)
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))
    assert named == set(document["components"]["schemas"])
    assert not {"Export", "admin"} & set(json.dumps(document).split('"'))


@pytest.mark.parametrize(("name", "path", "method"), _OPERATIONS)
def test_services_keep_to_their_documents(services: Services, name: str, path: str, method: str) -> None:
    _explore(services, name, path, method, _EXAMPLES)


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "path", "method"), _OPERATIONS)
def test_services_keep_to_their_documents_for_long(services: Services, name: str, path: str, method: str) -> None:
    _explore(services, name, path, method, _MANY)


def _explore(services: Services, name: str, path: str, method: str, examples: int) -> None:
    operation = services.schemas[name][path][method.upper()]
    cases = operation.as_strategy()

    @settings(max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=_UNLIKELY)
    @given(st.data())
    def explore(data: st.DataObject) -> None:
        case = data.draw(cases)
        if "name" in case.path_parameters and data.draw(st.integers(0, 3)):
            case.path_parameters["name"] = data.draw(_NAMES if method != "delete" else _DOOMED)
        headers = _headers(case, data, services.uploads[name])
        # What is refused for its meaning fits its schema; a token or body of ours is not what was drawn.
        without = [positive_data_acceptance, *([ignored_auth] if headers else [])]
        without += [negative_data_rejection] if case.media_type in (_MSGPACK, REQUEST_TYPE) else []
        case.call_and_validate(session=services.clients[name], headers=headers, excluded_checks=without)

    explore()


_UNLIKELY = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def _headers(case: Any, data: st.DataObject, uploads: list[bytes]) -> dict[str, str]:
    """Draw a body of reports where one is asked for, and the credentials that go with the request, or none."""
    if case.media_type in (_MSGPACK, REQUEST_TYPE):
        case.body = data.draw(_bodies(uploads))
    if not data.draw(st.booleans()):
        return {}
    path = case.operation.path
    if path.endswith("/reports"):
        return {UPLOAD.header: UPLOAD.sign(case.body, KEY)}
    if path.endswith("/tokens"):
        name, pseudonym = str(case.path_parameters["name"]), data.draw(st.sampled_from(["one", "two", "three"]))
        return {HEADER: attest(SECRET, name, pseudonym, int(time.time()) + 60)}
    if path == "/batches":
        return {SIGNATURE_HEADER: BATCH.sign(case.body, _SHUFFLER)}
    if path.endswith("/shuffler") and case.method == "POST":
        return {SIGNATURE_HEADER: sign_claim(str(case.path_parameters["name"]), _SHUFFLER)}
    return ADMIN


def _bodies(uploads: list[bytes]) -> st.SearchStrategy[bytes]:
    """Draw uploads, damaged uploads, and random bytes."""
    whole = st.sampled_from(uploads)
    cut = st.builds(lambda body, end: body[: end % len(body)], whole, st.integers(0, 1 << 16))
    flipped = st.builds(_flipped, whole, st.integers(0, 1 << 16), st.integers(1, 255))
    return whole | cut | flipped | st.binary(max_size=200)


def _flipped(body: bytes, at: int, bits: int) -> bytes:
    place = at % len(body)
    return body[:place] + bytes([body[place] ^ bits]) + body[place + 1 :]

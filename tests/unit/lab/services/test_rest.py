"""Requests of the command line: what a response keeps, and when authorities of certificates are loaded."""

import ssl
from typing import Any

import httpx
import pytest

from privateer_lab.services.rest import ServiceBusy, bounded_request, request_json


def test_a_busy_service_says_when_to_ask_again() -> None:
    """Planted: a response without the headers of the service."""
    busy = httpx.MockTransport(lambda _: httpx.Response(503, headers={"Retry-After": "3"}, content=b"busy"))
    with httpx.Client(transport=busy) as http, pytest.raises(ServiceBusy) as raised:
        request_json("GET", "http://server/experiments", http=http)
    assert raised.value.retry_after == 3


@pytest.mark.parametrize(
    ("url", "proxy", "n_loaded"),
    [
        ("http://127.0.0.1:1", "", 0),
        ("https://127.0.0.1:1", "", 1),
        ("http://127.0.0.1:1", "https://127.0.0.1:2", 2),  # of the proxy, and of requests without it
    ],
)
def test_certificates_of_authorities_are_loaded_for_encrypted_connections_alone(url, proxy, n_loaded, monkeypatch):
    for name in ("all_proxy", "http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    if proxy:
        monkeypatch.setenv("http_proxy", proxy)
    loaded: list[Any] = []
    load = ssl.SSLContext.load_verify_locations
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda *a, **k: (loaded.append(k), load(*a, **k)))
    with pytest.raises(httpx.ConnectError):
        bounded_request("GET", url)
    assert len(loaded) == n_loaded


def test_a_plain_connection_trusts_no_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    contexts: list[ssl.SSLContext] = []

    def stream(*_: Any, verify: ssl.SSLContext, **__: Any) -> None:
        contexts.append(verify)
        raise httpx.ConnectError("nobody")

    monkeypatch.setattr(httpx, "stream", stream)
    with pytest.raises(httpx.ConnectError):
        bounded_request("GET", "http://127.0.0.1:1")
    assert (contexts[0].verify_mode, contexts[0].get_ca_certs()) == (ssl.CERT_REQUIRED, [])

"""Authorities of the server's certificate, and why it refuses what the shuffler signs."""

import time
from functools import partial

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.errors import BatchRefused, SpecError, Unavailable
from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER, sign_claim, verify_claim
from privateer_core.wire.keys import signing_key_id
from privateer_core.wire.problem import problem_body
from privateer_shuffler.app import main
from privateer_shuffler.delivery import Upstream


@pytest.mark.parametrize("content", [None, "", "no certificate"])
def test_a_file_without_certificates_is_refused(tmp_path, content):
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SpecError, match=r"ca\.pem holds no certificates") as caught:
        Upstream("https://learn.example", authorities=path)
    assert caught.value.field == "PRIVATEER_SERVER_CA"


def test_a_bad_certificate_file_is_one_line_and_exit_code_2(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PRIVATEER_DATA", str(tmp_path))
    monkeypatch.setenv("PRIVATEER_SERVER_URL", "https://learn.example")
    monkeypatch.setenv("PRIVATEER_SERVER_CA", str(tmp_path / "missing.pem"))
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("seconds", [0, 3600])
async def test_a_refused_signature_is_attributed_to_clock_or_key(seconds):
    key, stranger = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    public_key = (key if seconds else stranger).public_key()
    trusted_keys = {signing_key_id(public_key): public_key}

    def answer(request):
        text, now = request.headers[SIGNATURE_HEADER], time.time() + seconds
        check = BATCH.verify if request.url.path == "/batches" else partial(verify_claim, "spring")
        with pytest.raises(BatchRefused) as refused:
            check(text, trusted_keys, now)
        return httpx.Response(refused.value.status, content=problem_body(refused.value))

    upstream = Upstream("http://server", httpx.MockTransport(answer))
    says = "clocks of the shuffler and the learning server differ" if seconds else "does not trust|refuses the batch"
    with pytest.raises(Unavailable, match=says):
        await upstream.claim("spring", sign_claim("spring", key))
    with pytest.raises(BatchRefused, match=says):
        await upstream.deliver("spring", b"batch", BATCH.sign(b"batch", key))

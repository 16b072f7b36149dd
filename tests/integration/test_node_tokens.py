"""Devices in JavaScript get upload tokens of an issuer, and spend them at shuffler and server."""

import json
import time
from collections.abc import Iterator

import httpx
import pytest

from privateer_core.wire.attestation import attest
from privateer_lab.services.processes import IssuerProcess, Services, free_port, run_services
from tests.integration.test_node_client import _LOCAL, _SHUFFLED, _page, node
from tests.support.specs import tables

pytestmark = pytest.mark.node

_SECRET = b"s" * 32
_PEOPLE = 300
_EXPERIMENTS = {"spring": _SHUFFLED, "autumn": _LOCAL, "summer": _SHUFFLED}
_LIMITS = json.dumps({"epsilon": 4.0, "local_epsilon": 6.0, "min_batch": _PEOPLE})


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """Services that take reports with tokens alone, and an issuer that believes what a backend has signed."""
    folder = tmp_path_factory.mktemp("services")
    (folder / "secrets").write_text(_SECRET.hex())
    issuing = IssuerProcess(",".join(_EXPERIMENTS), free_port(), "hmac", folder / "secrets")
    with run_services(folder, free_port(), free_port(), quiet=True, issuing=issuing) as at:
        for name, changes in _EXPERIMENTS.items():
            spec, headers = tables(changes | {"experiment.name": name}), {"Authorization": f"Bearer {at.token}"}
            response = httpx.post(f"{at.admin}/experiments", json=spec, headers=headers, timeout=60)
            assert response.status_code == 201, response.text
        yield at


@pytest.mark.parametrize("name", ["spring", "autumn"])
def test_people_with_tokens_are_counted_and_learned_from(services: Services, name: str) -> None:
    """Arm "a" is ahead, as it is without tokens: honest reports miss that in fewer than one run of a billion."""
    arguments = (services.server, services.shuffler, name, str(_PEOPLE), _LIMITS, services.issuer, _SECRET.hex())
    assert json.loads(node("sdk/js/examples/people.js", *arguments)) == {"accepted": _PEOPLE}
    deadline = time.monotonic() + 30
    while (facts := _page(services, name, ""))["version"] == 1:
        assert time.monotonic() < deadline, facts
        time.sleep(0.05)
    assert (facts["accepted"], facts["refused"]) == (_PEOPLE, {})
    policy = _page(services, name, "/policy")["policy"]
    assert all(box["arms"] == {"a": 1.0} for box in policy["shows"]["bins"])


_DEVICES = """
import {{ Client, MemoryLedger }} from "./sdk/js/src/node.js";
const [server, shuffler, issuer, good, forged, own] = {told};
const usual = {{ shuffler, limits: {limits}, retryTimeout: 0, warn: (text) => console.log(text) }};
const device = (signed, ledger = new MemoryLedger()) =>
  new Client(server, {{ ...usual, issuer, attest: () => signed, ledger }});
const fetched = (signed) => device(signed).fetchTokens("summer").catch((error) => error.type);
console.log(await fetched(good), await fetched(good), await fetched(forged));
const ledger = new MemoryLedger();
const session = await new Client(server, {{ ...usual, ledger }}).join("summer");
session.choose({{ x1: 0.5, x2: 0.5 }});
console.log(await session.report(1), session.refusal);
console.log((await device(own, ledger).flush()).summer, (await device(own, ledger).flush()).summer);
"""


def test_a_device_has_its_share_and_a_report_without_a_token_waits(services: Services) -> None:
    """A pseudonym has one token. What was reported without one is sent by the second `flush` that knows an issuer."""
    secrets = ((_SECRET, "one"), (b"f" * 32, "one"), (_SECRET, "two"))
    signed = [attest(secret, "summer", name, int(time.time()) + 600) for secret, name in secrets]
    arguments = json.dumps([services.server, services.shuffler, services.issuer, *signed])
    assert node("--input-type=module", "-e", _DEVICES.format(told=arguments, limits=_LIMITS)).splitlines() == [
        "1 tokens-exhausted attestation-refused",
        "pending token-missing",
        "pending accepted",
    ]

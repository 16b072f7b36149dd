"""An issuer says what it misses before it starts."""

from pathlib import Path
from typing import Any

import pytest

from privateer_core.errors import SpecError
from privateer_issuer.settings import IssuerSettings, read_settings
from privateer_issuer.token_requests import Hmac, Open, load_attestation

LEAST = {"PRIVATEER_EXPERIMENTS": "spring", "PRIVATEER_ATTESTATION_VERIFIER": "open"}


def test_optional_settings_have_defaults() -> None:
    expected = IssuerSettings(
        data=Path("data/issuer"),
        experiments=("spring",),
        name="127.0.0.1:8004",
        attestation_verifier="open",
        environment=LEAST,
    )
    assert read_settings(LEAST) == expected


def test_everything_can_be_set() -> None:
    environment = {
        "PRIVATEER_DATA": "/data",
        "PRIVATEER_EXPERIMENTS": "spring, autumn,spring",
        "PRIVATEER_ISSUER_NAME": "issuer.example",
        "PRIVATEER_ATTESTATION_VERIFIER": "hmac",
        "PRIVATEER_TOKENS_PER_DEVICE": "3",
        "PRIVATEER_KEY_DAYS": "7",
        "PRIVATEER_PUBLIC_KEY_FILE": "/tokens/issuer.json",
        "PRIVATEER_HOST": "0.0.0.0",
        "PRIVATEER_PORT": "9004",
        "PRIVATEER_ADMIN_HOST": "10.0.0.1",
        "PRIVATEER_ADMIN_PORT": "9005",
        "PRIVATEER_CORS_ORIGINS": "https://shop.example",
    }
    assert read_settings(environment) == IssuerSettings(
        data=Path("/data"),
        experiments=("spring", "autumn"),
        name="issuer.example",
        attestation_verifier="hmac",
        tokens_per_device=3,
        key_days=7,
        public_keys_file=Path("/tokens/issuer.json"),
        host="0.0.0.0",
        port=9004,
        admin_host="10.0.0.1",
        admin_port=9005,
        environment=environment,
        cors_origins=("https://shop.example",),
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PRIVATEER_EXPERIMENTS", ""),
        ("PRIVATEER_EXPERIMENTS", ","),
        ("PRIVATEER_EXPERIMENTS", "Spring"),
        ("PRIVATEER_EXPERIMENTS", "a/b"),
        ("PRIVATEER_ATTESTATION_VERIFIER", ""),
        ("PRIVATEER_ISSUER_NAME", "https://issuer.example"),
        ("PRIVATEER_ISSUER_NAME", "issu\N{LATIN SMALL LETTER E WITH ACUTE}r"),
        ("PRIVATEER_TOKENS_PER_DEVICE", "0"),
        ("PRIVATEER_KEY_DAYS", "0"),
        ("PRIVATEER_PORT", "x"),
        ("PRIVATEER_CORS_ORIGINS", "shop.example"),
    ],
)
def test_a_bad_setting_is_named(name: str, value: str) -> None:
    with pytest.raises(SpecError) as refused:
        read_settings(LEAST | {name: value})
    assert refused.value.field == name
    assert refused.value.remedy


def test_an_unknown_plug_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(SpecError, match="choose from open, hmac") as refused:
        load_attestation("nobody", {})
    assert refused.value.field == "PRIVATEER_ATTESTATION_VERIFIER"


def test_open_attestation_needs_no_settings() -> None:
    assert isinstance(load_attestation("open", {}), Open)


@pytest.mark.parametrize("text", [None, "", "xyz", "ab" * 31, "ab" * 32 + "\nab"])
def test_hmac_needs_secrets(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "secrets"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SpecError, match="openssl rand -hex 32") as refused:
        load_attestation("hmac", {"PRIVATEER_ATTESTATION_SECRETS": str(path)})
    assert refused.value.field == "PRIVATEER_ATTESTATION_SECRETS"


async def test_hmac_takes_several_secrets(tmp_path: Path) -> None:
    from privateer_core.wire.attestation import attest

    (tmp_path / "secrets").write_text("ab" * 32 + "\n" + "cd" * 32 + "\n")
    plug = load_attestation("hmac", {"PRIVATEER_ATTESTATION_SECRETS": str(tmp_path / "secrets")})
    assert isinstance(plug, Hmac)
    for secret in (b"\xab" * 32, b"\xcd" * 32):
        assert await plug.device(attest(secret, "spring", "one", 1100), "spring", 1000.0) == "one"


def test_a_plug_of_another_distribution_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its entry point, as an installed distribution has it."""
    (tmp_path / "platform_plug.py").write_text(
        "class Plug:\n"
        "    def __init__(self, environment):\n"
        "        self.environment = environment\n"
        "    async def device(self, text, experiment, now):\n"
        "        return text\n"
    )
    info = tmp_path / "platform_plug-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: platform-plug\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[privateer.attestations]\nplatform = platform_plug:Plug\n")
    monkeypatch.syspath_prepend(tmp_path)
    plug: Any = load_attestation("platform", {"A": "b"})
    assert plug.environment == {"A": "b"}
    with pytest.raises(SpecError, match="open, hmac, platform"):
        load_attestation("nobody", {})

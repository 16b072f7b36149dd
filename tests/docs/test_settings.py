"""The settings of services are declared once: their table, the compose files and the images follow."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.documents import settings
from tests.documents.settings import SERVICES

ROOT = Path(__file__).parents[2]
IMAGES = {"server": "server", "shuffler": "shuffler", "issuer": "issuer"}


def test_the_table_is_made_from_the_declarations() -> None:
    ((page, text),) = settings.documents().items()
    assert (ROOT / page).read_text() == text, "run make documents"


@pytest.mark.parametrize("service", SERVICES)
def test_every_setting_says_what_it_means(service: str) -> None:
    assert [name for name, field in SERVICES[service].variables().items() if not field.description] == []


def unknown(service: str, variables: dict[str, Any]) -> list[str]:
    known = SERVICES[service].variables()
    return [name for name in variables if name.startswith("PRIVATEER_") and name not in known]


@pytest.mark.parametrize("file", ["docker-compose.yml", "docker-compose.scale.yml"])
def test_compose_sets_what_services_know(file: str) -> None:
    composed = yaml.safe_load((ROOT / file).read_text())["services"]
    found = {name: unknown(name, one.get("environment", {})) for name, one in composed.items() if name in SERVICES}
    assert found
    assert not any(found.values()), found


def test_a_variable_that_no_service_knows_is_found() -> None:
    assert unknown("server", {"PRIVATEER_JOURNALS": "", "POSTGRES_USER": ""}) == ["PRIVATEER_JOURNALS"]


@pytest.mark.parametrize("service", SERVICES)
def test_images_set_what_services_know(service: str) -> None:
    (stage,) = re.findall(rf"^FROM \S+ AS {service}$(.*?)(?=^FROM |\Z)", (ROOT / "Dockerfile").read_text(), re.M | re.S)
    named = dict.fromkeys(re.findall(r"(PRIVATEER_[A-Z_]+)=", stage))
    assert named
    assert unknown(service, named) == []


@pytest.mark.parametrize("service", SERVICES)
def test_no_secret_is_shown(service: str) -> None:
    secret = "postgresql://me:opensesame-opensesame@there/x"
    least = {"PRIVATEER_DATA": "d", "PRIVATEER_EXPERIMENTS": "a", "PRIVATEER_ATTESTATION": "open"}
    keys = dict.fromkeys(("PRIVATEER_STORE_KEY_FILE", "PRIVATEER_IDENTITY", "PRIVATEER_SIGNING_KEY"), "key")
    databases = dict.fromkeys(("PRIVATEER_DATABASE", "PRIVATEER_JOURNAL_DATABASE", "PRIVATEER_ADMIN_TOKEN"), secret)
    shown = SERVICES[service].read(least | keys | databases)
    assert "opensesame" not in repr(shown) + str(shown)
    for name in databases:
        with pytest.raises(Exception, match="PRIVATEER_") as refused:
            SERVICES[service].read(
                least | keys | databases | {name: "mysql://opensesame", "PRIVATEER_PORT": "opensesame"}
            )
        assert "opensesame" not in str(refused.value)

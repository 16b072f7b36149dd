"""The settings of services are declared once: their table, the compose files and the images follow."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from privateer_server.settings import read_settings as read_server
from privateer_shuffler.settings import read_settings as read_shuffler
from tests.documents import settings
from tests.documents.settings import SERVICES

ROOT = Path(__file__).parents[2]
COMPOSE_FILES = ["docker-compose.yml", "docker-compose.scale.yml"]
WIRED = {
    *("PRIVATEER_HOST", "PRIVATEER_PORT", "PRIVATEER_ADMIN_HOST", "PRIVATEER_ADMIN_PORT"),
    *("PRIVATEER_DATA", "PRIVATEER_PUBLIC_KEY_FILE"),
}
"""Places within a container: the images set them, and ``.env`` has variables for the ports of the host."""
UNUSED_WITHOUT_DATABASES = {"PRIVATEER_DATABASE", "PRIVATEER_JOURNAL_DATABASE", "PRIVATEER_STORE_KEY_FILE"}
WIRED_TO_DATABASES = UNUSED_WITHOUT_DATABASES | {
    "PRIVATEER_JOURNAL",
    "PRIVATEER_PUBLICATION_KEY",
    "PRIVATEER_SIGNING_KEY",
}


def test_the_table_is_made_from_the_declarations() -> None:
    ((page, text),) = settings.documents().items()
    assert (ROOT / page).read_text() == text, "run make documents"


@pytest.mark.parametrize("service", SERVICES)
def test_every_setting_says_what_it_means(service: str) -> None:
    assert [name for name, field in SERVICES[service].variables().items() if not field.description] == []


class Composed:
    """What a compose file tells its services when ``.env`` says something."""

    def __init__(self, file: str, text: str = "") -> None:
        self._services = yaml.safe_load(text or (ROOT / file).read_text())["services"]
        self.wired = WIRED | (WIRED_TO_DATABASES if "scale" in file else UNUSED_WITHOUT_DATABASES)

    def environment(self, service: str, env: Mapping[str, str] = {}) -> dict[str, str]:
        def fill(match: re.Match[str]) -> str:
            name, default = match.group(1), match.group(3) or ""
            return env.get(name) or default

        variables = self._services[service]["environment"]
        return {name: re.sub(r"\$\{(\w+)(:[-?]([^}]*))?\}", fill, str(value)) for name, value in variables.items()}

    def missing(self, service: str) -> list[str]:
        """Settings that the docs name and that a line in ``.env`` does not set."""
        names = SERVICES[service].variables().keys() - self.wired
        return [name for name in sorted(names) if not self._reaches(service, name)]

    def _reaches(self, service: str, name: str) -> bool:
        if name == "PRIVATEER_ATTESTATION_SECRETS":  # a file of the host, which is mounted where the service looks
            place = self.environment(service)[name]
            return f"${{{name}:-/dev/null}}:{place}:ro" in self._services[service]["volumes"]
        variable = f"PRIVATEER_{service.upper()}_TOKEN_ORIGIN" if name == "PRIVATEER_TOKEN_ORIGIN" else name
        return "WRITTEN" in self.environment(service, {variable: "WRITTEN"}).get(name, "")


def unknown(service: str, variables: dict[str, Any]) -> list[str]:
    known_variables = SERVICES[service].variables()
    return [name for name in variables if name.startswith("PRIVATEER_") and name not in known_variables]


@pytest.mark.parametrize("file", COMPOSE_FILES)
def test_compose_sets_only_variables_that_services_know(file: str) -> None:
    composed = yaml.safe_load((ROOT / file).read_text())["services"]
    extra = {name: unknown(name, s.get("environment", {})) for name, s in composed.items() if name in SERVICES}
    assert extra
    assert not any(extra.values()), extra


def test_a_variable_that_no_service_knows_is_found() -> None:
    assert unknown("server", {"PRIVATEER_JOURNALS": "", "POSTGRES_USER": ""}) == ["PRIVATEER_JOURNALS"]


@pytest.mark.parametrize("file", COMPOSE_FILES)
def test_every_setting_in_env_reaches_the_service_that_reads_it(file: str) -> None:
    composed = Composed(file)
    services = [name for name in SERVICES if name != "issuer" or "scale" not in file]
    assert {service: composed.missing(service) for service in services} == {service: [] for service in services}


def test_a_setting_that_is_not_passed_on_is_found() -> None:
    """Planted: the shuffler's floor is left out, as it was."""
    text = (ROOT / "docker-compose.yml").read_text()
    planted = text.replace("  PRIVATEER_MIN_BATCH: ${PRIVATEER_MIN_BATCH:-}\n", "")
    assert planted != text
    assert Composed("docker-compose.yml", planted).missing("shuffler") == ["PRIVATEER_MIN_BATCH"]


@pytest.mark.parametrize("file", COMPOSE_FILES)
def test_a_floor_in_env_protects_and_the_largest_sizes_are_taken(file: str) -> None:
    composed = Composed(file)
    env = {"PRIVATEER_MIN_BATCH": "500", "PRIVATEER_BATCH_BYTES_MAX": "500000000", "PRIVATEER_BODY_BUDGET": "500000000"}
    assert read_shuffler(composed.environment("shuffler", env)).limits.min_batch == 500
    variables = composed.environment("server", env | {"PRIVATEER_ADMIN_TOKEN": "a token of 16 characters"})
    server = read_server({"PRIVATEER_DATA": "/data", **variables}, [])
    assert (server.limits.batch_bytes_max, server.limits.body_budget) == (500_000_000, 500_000_000)


def test_an_env_with_the_token_alone_leaves_every_setting_as_shipped() -> None:
    base = {"PRIVATEER_DATA": "/data", "PRIVATEER_ADMIN_TOKEN": "a token of 16 characters"}
    composed = Composed("docker-compose.yml")
    wired = {"admin_allowed_hosts", "sender_keys", "shuffler_keys", "tokens", "server_url"}
    for service, read in (("server", lambda values: read_server(values, [])), ("shuffler", read_shuffler)):
        values = {name: text for name, text in composed.environment(service, base).items() if name != "PRIVATEER_DATA"}
        assert read({**base, **values}).model_dump(exclude=wired) == read(base).model_dump(exclude=wired)


def test_the_page_names_what_env_does_not_set() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text().partition("\n## Docker\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"`(PRIVATEER_[A-Z_]+)`", page)) >= WIRED | WIRED_TO_DATABASES


@pytest.mark.parametrize("service", SERVICES)
def test_images_set_only_variables_that_services_know(service: str) -> None:
    (stage,) = re.findall(rf"^FROM \S+ AS {service}$(.*?)(?=^FROM |\Z)", (ROOT / "Dockerfile").read_text(), re.M | re.S)
    named = dict.fromkeys(re.findall(r"(PRIVATEER_[A-Z_]+)=", stage))
    assert named
    assert unknown(service, named) == []


@pytest.mark.parametrize("service", SERVICES)
def test_no_secret_is_shown(service: str) -> None:
    secret = "postgresql://me:opensesame-opensesame@there/x"
    minimal = {"PRIVATEER_DATA": "d", "PRIVATEER_EXPERIMENTS": "a", "PRIVATEER_ATTESTATION": "open"}
    keys = dict.fromkeys(("PRIVATEER_STORE_KEY_FILE", "PRIVATEER_PUBLICATION_KEY", "PRIVATEER_SIGNING_KEY"), "key")
    databases = dict.fromkeys(("PRIVATEER_DATABASE", "PRIVATEER_JOURNAL_DATABASE", "PRIVATEER_ADMIN_TOKEN"), secret)
    settings = SERVICES[service].read(minimal | keys | databases)
    assert "opensesame" not in repr(settings) + str(settings)
    for name in databases:
        with pytest.raises(Exception, match="PRIVATEER_") as refused:
            SERVICES[service].read(
                minimal | keys | databases | {name: "mysql://opensesame", "PRIVATEER_PORT": "opensesame"}
            )
        assert "opensesame" not in str(refused.value)

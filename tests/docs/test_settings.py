"""The settings of services are declared once: their table, the compose files and the images follow."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from privateer_server.settings import read_settings as read_server
from privateer_shuffler.settings import read_settings as read_shuffler
from tests.docs.test_proxy import FORWARDED, Directive, parse
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


@pytest.mark.parametrize("service", SERVICES)
def test_images_set_only_variables_that_services_know(service: str) -> None:
    (stage,) = re.findall(rf"^FROM \S+ AS {service}$(.*?)(?=^FROM |\Z)", (ROOT / "Dockerfile").read_text(), re.M | re.S)
    named = dict.fromkeys(re.findall(r"(PRIVATEER_[A-Z_]+)=", stage))
    assert named
    assert unknown(service, named) == []


@pytest.mark.parametrize("service", SERVICES)
def test_no_secret_is_shown(service: str) -> None:
    secret = "postgresql://me:opensesame-opensesame@there/x"
    minimal = {"PRIVATEER_DATA": "d", "PRIVATEER_EXPERIMENTS": "a", "PRIVATEER_ATTESTATION_VERIFIER": "open"}
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


FILES = ["docker-compose.yml", "docker-compose.scale.yml"]
PROXY = (ROOT / "deploy" / "proxy" / "nginx.conf").read_text()
BALANCER = (ROOT / "deploy" / "compose" / "nginx.conf").read_text()
SHARED = [
    *("access_log", "log_not_found", "error_log", "server_tokens", "proxy_cache", "proxy_max_temp_file_size"),
    *("proxy_request_buffering", "client_body_buffer_size", "client_header_timeout", "client_body_timeout"),
    *("send_timeout", "keepalive_timeout", "client_header_buffer_size", "large_client_header_buffers"),
    *("proxy_read_timeout", "proxy_send_timeout", "limit_conn", "limit_req", "limit_conn_status", "limit_req_status"),
]


def services(name: str) -> dict[str, dict[str, Any]]:
    return dict(yaml.safe_load((ROOT / name).read_text())["services"])


def faults(service: dict[str, Any]) -> list[str]:
    """What lets a service have more than it needs."""
    checks = {
        "memory": bool(service.get("mem_limit")),
        "processes": 0 < service.get("pids_limit", 0) <= 1024,
        "capabilities": service.get("cap_drop") == ["ALL"] and "cap_add" not in service,
        "privileges": service.get("security_opt") == ["no-new-privileges:true"],
        "a system that can be written": service.get("read_only") is True,
    }
    return [name for name, is_well in checks.items() if not is_well]


@pytest.mark.parametrize("file", FILES)
def test_every_service_has_its_bounds(file: str) -> None:
    assert {name: faults(service) for name, service in services(file).items() if faults(service)} == {}


@pytest.mark.parametrize("missing", ["mem_limit", "pids_limit", "cap_drop", "security_opt", "read_only"])
def test_a_service_without_is_found(missing: str) -> None:
    server = services("docker-compose.yml")["server"]
    assert len(faults({name: value for name, value in server.items() if name != missing})) == 1


def test_every_database_has_a_password_of_its_own_and_no_root() -> None:
    composed = services("docker-compose.scale.yml")
    databases = {name: service for name, service in composed.items() if name.endswith("-db")}
    passwords = {name: service["environment"]["POSTGRES_PASSWORD"] for name, service in databases.items()}
    assert len(set(passwords.values())) == len(passwords) == 3
    assert all(
        re.fullmatch(r"\$\{PRIVATEER_[A-Z_]+_PASSWORD:\?[^}]+\}", password_) for password_ in passwords.values()
    ), "none has a default, and each says what to do"
    assert all(service["user"] == "postgres" for service in databases.values())
    for service in composed.values():
        for address in service.get("environment", {}).values():
            if str(address).startswith("postgresql://"):
                password, database = re.fullmatch(r"postgresql://privateer:(.+)@([a-z-]+)/privateer", address).groups()  # type: ignore[union-attr]
                assert passwords[database] == password


def http(text: str) -> Directive:
    (block,) = [directive for directive in parse(text).inside if directive.name == "http"]
    return block


def directives(text: str, name: str) -> list[tuple[str, ...]]:
    return http(text).args(name) or parse(text).args(name)


@pytest.mark.parametrize("name", SHARED)
def test_the_balancer_has_the_limits_of_the_proxy(name: str) -> None:
    assert directives(BALANCER, name) == directives(PROXY, name) != []


def test_limits_are_by_address_and_leave_proxies_alone() -> None:
    balancer = http(BALANCER)
    zones = [words[0] for name in ("limit_conn_zone", "limit_req_zone") for words in balancer.args(name)]
    assert zones == ["$stranger", "$stranger"]
    headers_ = {words[0]: words[1] for words in balancer.args("proxy_set_header")}
    assert all(headers_.get(name) == "" for name in FORWARDED)

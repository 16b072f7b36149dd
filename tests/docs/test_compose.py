"""The compose files keep every service within bounds, and the balancer has the limits that a proxy has."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.test_proxy import FORWARDED, Directive, parse

ROOT = Path(__file__).parents[2]
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
    assert all(re.fullmatch(r"\$\{PRIVATEER_[A-Z_]+_PASSWORD:\?\}", password_) for password_ in passwords.values()), (
        "none has a default"
    )
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
    public = [words for words in balancer.inside if words.name == "server" and ("8000",) in words.args("listen")]
    streams = [words for words in public[0].inside if words.words[:1] == ("~",)]
    assert [words.args("proxy_buffering") for words in streams] == [[("off",)]]

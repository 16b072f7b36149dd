"""The manifests under deploy/ name settings, ports, routes and images that are there, and give no needless rights."""

import asyncio
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import yaml

from privateer_core.errors import SpecError
from privateer_issuer.settings import read_settings as read_issuer
from privateer_server.settings import read_settings as read_server
from privateer_shuffler.settings import read_settings as read_shuffler
from tests.documents import monitoring
from tests.documents.openapi import service_documents

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "deploy" / "kubernetes"
SERVICES: Final[dict[str, Callable[[Mapping[str, str]], object]]] = {
    "server": lambda environment: read_server(environment, []),
    "shuffler": read_shuffler,
    "issuer": read_issuer,
}
PRIVATE: Final = {"server": 8002, "shuffler": 8003, "issuer": 8005}
GIVEN: Final = {
    "admin-token": "a token of 16 characters",
    "database": "postgresql://there/data",
    "journal-database": "postgresql://there/journal",
    "experiments": "spring",
    "name": "issuer.example",
}


def documents(name: str) -> Iterator[dict[str, Any]]:
    """All documents of a file."""
    yield from yaml.safe_load_all((FOLDER / name).read_text())


def find_document(kind: str, service: str) -> dict[str, Any]:
    file = f"{service.removesuffix('-private')}.yaml"
    (document,) = (d for d in documents(file) if d["kind"] == kind and d["metadata"]["name"] == service)
    return document


def pod(service: str) -> dict[str, Any]:
    spec: dict[str, Any] = find_document("Deployment", service)["spec"]["template"]["spec"]
    return spec


def container(service: str) -> dict[str, Any]:
    (entry,) = pod(service)["containers"]
    return dict(entry)


def stage(service: str) -> str:
    """The stage of the Dockerfile that a service's image is made by."""
    match = re.search(rf"FROM base AS {service}\n(.*?)(\n\n|\Z)", (ROOT / "Dockerfile").read_text(), re.DOTALL)
    assert match
    return match.group(1)


def environment(service: str, settings: Mapping[str, str] = {}) -> dict[str, str]:
    """Return a service's environment: its variables, with made-up secrets, and the settings of its config map."""

    def value(entry: Mapping[str, Any]) -> str:
        if "value" in entry:
            return str(entry["value"])
        (source,) = entry["valueFrom"].values()
        return GIVEN[source["key"]]

    (maps,) = container(service)["envFrom"]
    assert maps == {"configMapRef": {"name": f"privateer-{service}-settings", "optional": True}}
    return {**settings, **{entry["name"]: value(entry) for entry in container(service)["env"]}}


@pytest.mark.parametrize("service", SERVICES)
def test_every_variable_is_a_setting_and_all_are_accepted(service: str) -> None:
    variables = environment(service)
    assert SERVICES[service](variables)
    table = (ROOT / "docs" / "configuration.md").read_text()
    for name in variables:
        rows = [row for row in table.splitlines() if row.startswith("|") and f"`{name}`" in row]
        assert any(row.split("|")[2].strip() == "all" or service in row.split("|")[2] for row in rows), name


@pytest.mark.parametrize("service", SERVICES)
def test_a_config_map_gives_a_service_its_other_settings(service: str) -> None:
    variables = environment(service, {"PRIVATEER_CORS_ORIGINS": "https://shop.example"})
    assert getattr(SERVICES[service](variables), "cors_origins") == ("https://shop.example",)  # noqa: B009
    command = f"configmap privateer-{service}-settings --from-literal=PRIVATEER_"
    assert command.replace(service, "SERVICE") in (ROOT / "docs" / "deploying.md").read_text()


@pytest.mark.parametrize(
    ("name", "services"),
    [("docker-compose.yml", ["server", "shuffler", "issuer"]), ("docker-compose.scale.yml", ["server", "shuffler"])],
)
def test_composed_services_get_the_origins_of_pages(name: str, services: list[str]) -> None:
    composed = yaml.safe_load((ROOT / name).read_text())["services"]
    named = [service for service, facts in composed.items() if "PRIVATEER_CORS_ORIGINS" in facts.get("environment", {})]
    assert named == services
    assert {composed[service]["environment"]["PRIVATEER_CORS_ORIGINS"] for service in named} == {
        "${PRIVATEER_CORS_ORIGINS:-}"
    }


@pytest.mark.parametrize(
    ("service", "name"),
    [
        ("server", "PRIVATEER_STORE_KEY_FILE"),
        ("server", "PRIVATEER_PUBLICATION_KEY"),
        ("shuffler", "PRIVATEER_SIGNING_KEY"),
    ],
)
def test_a_variable_that_was_forgotten_is_noticed(service: str, name: str) -> None:
    with pytest.raises(SpecError):
        SERVICES[service]({key: value for key, value in environment(service).items() if key != name})


@pytest.mark.parametrize("service", SERVICES)
def test_ports_are_those_of_the_image(service: str) -> None:
    ports = {port["name"]: port["containerPort"] for port in container(service)["ports"]}
    exposed = re.search(r"EXPOSE (\d+) (\d+)", stage(service))
    assert exposed
    assert list(ports.values()) == [int(port) for port in exposed.groups()]
    assert ports["private"] == PRIVATE[service]
    services = [d for d in documents(f"{service}.yaml") if d["kind"] == "Service"]
    service_ports = {d["metadata"]["name"]: d["spec"]["ports"][0] for d in services}
    for name, kind in ((service, "public"), (f"{service}-private", "private")):
        assert service_ports[name] == {"name": kind, "port": ports[kind], "targetPort": kind}
    assert all(d["spec"]["selector"] == {"app": service} for d in services)


@pytest.mark.parametrize("service", SERVICES)
def test_probes_ask_routes_of_the_public_listener(service: str) -> None:
    routes = service_documents()[service]["paths"]
    for probe, path in (("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        request = container(service)[probe]["httpGet"]
        assert request == {"path": path, "port": "public"}
        assert "get" in routes[path]


@pytest.mark.parametrize("service", SERVICES)
def test_pods_have_no_rights(service: str) -> None:
    spec, only = pod(service), container(service)
    user = re.search(r"--uid (\d+)", (ROOT / "Dockerfile").read_text())
    assert user
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": int(user.group(1)),
        "runAsGroup": int(user.group(1)),
        "fsGroup": int(user.group(1)),
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert only["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"cpu", "memory"} == set(only["resources"]["limits"]) == set(only["resources"]["requests"])
    mounted = {mount["name"] for mount in only["volumeMounts"]}
    assert mounted == {volume["name"] for volume in spec["volumes"]}
    writable = {mount["mountPath"] for mount in only["volumeMounts"] if not mount.get("readOnly")}
    assert writable <= {"/tmp", "/data"}


@pytest.mark.parametrize("service", ["server", "shuffler"])
def test_a_drain_leaves_replicas(service: str) -> None:
    budget = find_document("PodDisruptionBudget", service)["spec"]
    assert budget["selector"] == {"matchLabels": {"app": service}}
    assert 0 < budget["minAvailable"] < find_document("Deployment", service)["spec"]["replicas"]


def test_the_operator_of_prometheus_scrapes_and_has_the_alerts() -> None:
    (rules,), (monitor,) = documents("monitoring/rules.yaml"), documents("monitoring/monitor.yaml")
    assert monitoring.documents() == {monitoring.RULES: (ROOT / monitoring.RULES).read_text()}
    assert rules["spec"] == yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())
    (endpoint,), job_label = monitor["spec"]["endpoints"], monitor["spec"]["jobLabel"]
    for service in SERVICES:
        private = find_document("Service", f"{service}-private")
        assert private["metadata"]["labels"][job_label] == f"privateer-{service}"
        assert private["spec"]["ports"][0]["name"] == endpoint["port"]
    (kustomization,) = documents("kustomization.yaml")
    labels = {key: value for entry in kustomization["labels"] for key, value in entry["pairs"].items()}
    assert monitor["spec"]["selector"]["matchLabels"] == labels


@pytest.mark.parametrize(("status", "code"), [("200 OK", 0), ("503 Service Unavailable", 1), (None, 1)])
async def test_the_images_check_asks_for_readiness(status: str | None, code: int) -> None:
    """A health check is a shell's own connection, which costs a service nothing."""
    match = re.search(r"^HEALTHCHECK .*\\\n +CMD (\[.*\])$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert match
    requests: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(f"HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n".encode())
        writer.close()

    service = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = service.sockets[0].getsockname()[1]
    if status is None:
        service.close()
    process = await asyncio.create_subprocess_exec(
        *json.loads(match.group(1)), env={**os.environ, "PRIVATEER_PORT": str(port)}, stderr=asyncio.subprocess.DEVNULL
    )
    assert await process.wait() == code
    service.close()
    assert requests == ([b"GET /readyz HTTP/1.0\r\n\r\n"] if status else [])


def policy(name: str) -> dict[str, Any]:
    (spec,) = (d["spec"] for d in documents("network.yaml") if d["metadata"]["name"] == name)
    return dict(spec)


def list_peers(service: str, port: int) -> list[dict[str, Any]]:
    """Return the peers that may reach a port of a service."""
    rules = [rule for rule in policy(service)["ingress"] if {"port": port} in rule["ports"]]
    return [peer for rule in rules for peer in rule["from"]]


def test_no_pod_reaches_another_unless_it_is_allowed() -> None:
    assert policy("nobody") == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    for service, port in PRIVATE.items():
        pods = [peer["podSelector"] for peer in list_peers(service, port) if "podSelector" in peer]
        assert pods == ([{"matchLabels": {"app": "shuffler"}}] if service == "server" else [])
        assert len(list_peers(service, port)) == len(pods) + 1
    # Strangers come by the ingress controller alone, and only to public ports.
    ports = {service: [p["port"] for rule in policy(service)["ingress"] for p in rule["ports"]] for service in PRIVATE}
    assert ports == {"server": [8000, 8002], "shuffler": [8001, 8003], "issuer": [8004, 8005]}
    for service, (public, _) in ports.items():
        (stranger,) = list_peers(service, public)
        assert list(stranger) == ["namespaceSelector"]


def test_the_shuffler_reaches_the_server_and_its_database_alone() -> None:
    server, database = policy("shuffler")["egress"]
    assert server == {"to": [{"podSelector": {"matchLabels": {"app": "server"}}}], "ports": [{"port": 8002}]}
    url = urlsplit(environment("shuffler")["PRIVATEER_SERVER_URL"])
    assert url.port == 8002
    # The private listener answers to its own names alone.
    assert url.hostname in environment("server")["PRIVATEER_ADMIN_ALLOWED_HOSTS"].split(",")
    assert url.hostname in {d["metadata"]["name"] for d in documents("server.yaml") if d["kind"] == "Service"}
    assert database["to"][0]["podSelector"] == {"matchLabels": {"privateer-database": "shuffler"}}
    (other,) = policy("server")["egress"]
    assert other["to"][0]["podSelector"] == {"matchLabels": {"privateer-database": "server"}}
    assert "egress" not in policy("issuer")

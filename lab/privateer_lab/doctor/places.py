"""Locations of services, and checks of their listeners."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import httpx

from privateer_core.errors import SpecError
from privateer_core.serving.settings import ServiceSettings
from privateer_core.wire.problem import read_slug
from privateer_issuer.settings import read_settings as read_issuer
from privateer_lab.doctor.checkup import CLOCK_SECONDS, Checkup
from privateer_lab.services.processes import IssuerProcess, service_settings
from privateer_lab.services.rest import bounded_request, read_object_or_empty
from privateer_server.settings import ServerSettings
from privateer_server.settings import read_settings as read_server
from privateer_shuffler.settings import ShufflerSettings
from privateer_shuffler.settings import read_settings as read_shuffler

_TIMEOUT_SECONDS: Final = 5.0
_LOOPBACK_BY_WILDCARD: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - asked, not bound
_CHECK: Final = "answers"
_CLOCK: Final = re.compile(r"^privateer_(?:\w+_)?time_seconds ([0-9.e+]+)$", re.MULTILINE)
NAME_REMEDY: Final = "name its folder, or the ports of this one"


class Listeners:
    """The addresses of a service's two listeners."""

    def __init__(self, public: tuple[str, int], private: tuple[str, int]) -> None:
        self.public, self.private = _url(*public), _url(*private)

    @classmethod
    def from_settings(cls, settings: ServiceSettings) -> Self:
        """Return the listeners of a service with these settings."""
        return cls((settings.host, settings.port), (settings.admin_host, settings.admin_port))

    def check(self, checkup: Checkup, is_in_use: bool | None) -> bool:
        """Check that the service responds, as it must if its database is in use; return whether it does."""
        health = fetch_or_none(f"{self.public}/healthz")
        if health is None and is_in_use:
            detail = f"a process has the data open, and nothing answers at {self.public}"
            checkup.fail(_CHECK, detail, "correct the address; if it hangs, kill the process and start it again")
            return False
        if health is None:
            checkup.warn(_CHECK, f"nothing answers at {self.public}", "start the service if it should run")
            return False
        if read_object_or_empty(health.content).get("status") != "ok":
            remedy = "stop that process, or correct the address"
            checkup.fail(_CHECK, f"what answers at {self.public} is no Privateer service", remedy)
            return False
        if is_in_use is False:
            detail = f"a {checkup.service} answers at {self.public}, and it does not use this folder"
            checkup.fail(_CHECK, detail, NAME_REMEDY)
            return False
        self._check_ready(checkup)
        return True

    def _check_ready(self, checkup: Checkup) -> None:
        """Check that the public listener is ready and that the private one shows metrics."""
        readiness, metrics = fetch_or_none(f"{self.public}/readyz"), fetch_or_none(f"{self.private}/metrics")
        if readiness is None or not readiness.is_success:
            detail, remedy = _parse_problem(readiness)
            checkup.fail(_CHECK, f"/healthz is fine, and /readyz is not: {detail}", remedy)
        elif metrics is None or not metrics.is_success:
            detail = f"the public listener answers, and the private one at {self.private} does not"
            checkup.fail(_CHECK, detail, "correct its address (PRIVATEER_ADMIN_HOST, PRIVATEER_ADMIN_PORT)")
        else:
            checkup.ok(_CHECK, f"/healthz and /readyz are fine at {self.public}")


def fetch_or_none(url: str) -> httpx.Response | None:
    """Fetch an address; return None without a response."""
    try:
        return bounded_request("GET", url, timeout_seconds=_TIMEOUT_SECONDS, trust_env=False)
    except (httpx.HTTPError, httpx.InvalidURL):
        return None


def check_shown_clock(checkup: Checkup, metrics: str, url: str) -> None:
    """Compare the clock in a service's metrics with this machine's clock."""
    clock = _CLOCK.search(metrics)
    if clock and abs(float(clock[1]) - time.time()) > CLOCK_SECONDS:
        detail = f"the clock of the service at {url} is more than a minute off this machine's"
        checkup.fail("clock", detail, "set both right (timedatectl, NTP): from five minutes on, batches are refused")


def fetch_listed_keys(url: str) -> list[str]:
    """Fetch the public keys that a service lists, hexadecimal; an empty list without a valid response."""
    document = fetch_object(f"{url}/keys")
    rows = document.get("keys", [document])
    return [str(row["public_key"]) for row in rows if isinstance(row, dict) and "public_key" in row]


def fetch_object(url: str) -> dict[str, Any]:
    """Fetch the JSON object at an address; an empty one without a valid response."""
    response = fetch_or_none(url)
    return {} if response is None else read_object_or_empty(response.content)


def _parse_problem(response: httpx.Response | None) -> tuple[str, str]:
    """Return detail and remedy of a service's error; other responses are not quoted."""
    if response is None or read_slug(response.content) == "unknown":
        return "it does not answer", "see the service's log"
    document = read_object_or_empty(response.content)
    return str(document.get("detail")), str(document.get("remedy"))


def _url(host: str, port: int) -> str:
    host = _LOOPBACK_BY_WILDCARD.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


_NO_TOKEN: Final = {"PRIVATEER_ADMIN_TOKEN": "the doctor asks for nothing that needs one"}


@dataclass(frozen=True)
class IssuerPlace:
    """The location of an issuer."""

    # data, public_keys_file: its folder, and the file of its public keys
    data: Path
    public_keys_file: Path
    listeners: Listeners | None = None  # its listeners; None: they are not checked
    secrets: Path | None = None  # file of the secrets shared with the application, if any


@dataclass(frozen=True)
class ServicePlaces:
    """The services to check."""

    # settings of the services on this machine
    server: ServerSettings | None = None
    shuffler: ShufflerSettings | None = None
    # private key that signs uploads, and file of its public half, if they are on this machine
    sender: tuple[Path, Path] | None = None
    issuer: IssuerPlace | None = None


def find_started_services(
    data: Path, ports: tuple[int, int, int, int], issuer_ports: tuple[int, int], environment: Mapping[str, str]
) -> ServicePlaces:
    """Return the services in the folder of ``privateer up``, public before private ports; refuse an empty one."""
    variables = service_settings(data, ports, "")
    issuer = data / "issuer"
    if issuer.exists():  # then both services take reports with tokens alone
        issuer_process = IssuerProcess("", issuer_ports[0])
        for name, port in zip(("server", "shuffler"), ports, strict=False):
            variables[name] |= issuer_process.token_settings(data, f"http://127.0.0.1:{port}")
    server = read_server({**environment, **variables["server"], **_NO_TOKEN}, [])
    shuffler = read_shuffler({**environment, **variables["shuffler"]})
    if not (server.data.exists() or shuffler.data.exists()):
        remedy = "name the folder of privateer up; of other services: privateer doctor server, or shuffler"
        raise SpecError(f"there is neither a server nor a shuffler in {data}", field="--data", remedy=remedy)
    private, public = data / "sender.key", data / "senders" / "sender.pub"
    # Both are made together: where one is missing its disk may be, too.
    listeners = Listeners(*(("127.0.0.1", port) for port in issuer_ports))
    issuer_place = IssuerPlace(issuer, data / "tokens" / "issuer.json", listeners) if issuer.exists() else None
    return ServicePlaces(server, shuffler, (private, public) if private.exists() else None, issuer_place)


def service_places(service: str, environment: Mapping[str, str], data: Path | None) -> ServicePlaces:
    """Return the service that the environment configures; ``data`` is its folder, if given."""
    folder = str(data or environment.get("PRIVATEER_DATA") or Path("data") / service)
    variables = {**_NO_TOKEN, **environment, "PRIVATEER_DATA": folder}
    if service == "server":
        return ServicePlaces(server=read_server(variables, []))
    if service == "shuffler":
        return ServicePlaces(shuffler=read_shuffler(variables))
    issuer = read_issuer(variables)
    public_keys, secrets = issuer.public_keys_file, issuer.attestation_secrets
    return ServicePlaces(issuer=IssuerPlace(issuer.data, public_keys, Listeners.from_settings(issuer), secrets))

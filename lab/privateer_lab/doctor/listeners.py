"""What the services answer, and whether it is they who answer."""

import re
import time
from typing import Any, Final, Self

import httpx
import msgspec

from privateer_core.serving.settings import ServiceSettings
from privateer_core.wire.problem import slug_of
from privateer_lab.doctor.checkup import Checkup
from privateer_lab.doctor.stored_data import CLOCK_SECONDS
from privateer_lab.services.rest import bounded_request

_SECONDS: Final = 5.0
_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - asked, not bound
_CHECK: Final = "answers"
_CLOCK: Final = re.compile(r"^privateer_(?:\w+_)?time_seconds ([0-9.e+]+)$", re.MULTILINE)
NAME_IT: Final = "name its folder, or the ports of this one"


class Listeners:
    """The two addresses of a service, and what answers there.

    public, private: the addresses.
    """

    def __init__(self, public: tuple[str, int], private: tuple[str, int]) -> None:
        self.public, self.private = _url(*public), _url(*private)

    @classmethod
    def of(cls, settings: ServiceSettings) -> Self:
        """Return where the settings have a service listen."""
        return cls((settings.host, settings.port), (settings.admin_host, settings.admin_port))

    def check(self, found: Checkup, held: bool | None) -> bool:
        """Check that the service answers, and return whether it does.

        held: whether a process has its database open; None if that is not known.
        """
        health = get(f"{self.public}/healthz")
        if health is None:
            _check_silence(found, self.public, held)
            return False
        if _object(health).get("status") != "ok":
            remedy = "stop that process, or correct the address"
            found.fail(_CHECK, f"what answers at {self.public} is no Privateer service", remedy)
            return False
        if held is False:
            detail = f"a {found.service} answers at {self.public}, and it does not use this folder"
            found.fail(_CHECK, detail, NAME_IT)
            return False
        self._check_ready(found)
        return True

    def _check_ready(self, found: Checkup) -> None:
        ready, private = get(f"{self.public}/readyz"), get(f"{self.private}/metrics")
        if ready is None or not ready.is_success:
            detail, remedy = _problem(ready)
            found.fail(_CHECK, f"/healthz is fine, and /readyz is not: {detail}", remedy)
        elif private is None or not private.is_success:
            detail = f"the public listener answers, and the private one at {self.private} does not"
            found.fail(_CHECK, detail, "correct its address (PRIVATEER_ADMIN_HOST, PRIVATEER_ADMIN_PORT)")
        else:
            found.ok(_CHECK, f"/healthz and /readyz are fine at {self.public}")


def _check_silence(found: Checkup, url: str, held: bool | None) -> None:
    if held:
        detail = f"a process has the data open, and nothing answers at {url}"
        found.fail(_CHECK, detail, "correct the address; if it hangs, kill the process and start it again")
    else:
        found.warn(_CHECK, f"nothing answers at {url}", "start the service if it should run")


def get(url: str) -> httpx.Response | None:
    """Return what an address answers; None if nothing does."""
    try:
        return bounded_request("GET", url, seconds=_SECONDS, trust_env=False)
    except (httpx.HTTPError, httpx.InvalidURL):
        return None


def check_shown_clock(found: Checkup, metrics: str, url: str) -> None:
    """Compare the clock that a service's metrics show with this machine's."""
    clock = _CLOCK.search(metrics)
    if clock and abs(float(clock[1]) - time.time()) > CLOCK_SECONDS:
        detail = f"the clock of the service at {url} is more than a minute off this machine's"
        found.fail("clock", detail, "set both right (timedatectl, NTP): from five minutes on, batches are refused")


def listed_keys(url: str) -> list[str]:
    """Return the public keys that a service lists, hexadecimal; none if it does not answer so."""
    listed = page(f"{url}/keys")
    rows = listed.get("keys", [listed])
    return [str(row["public_key"]) for row in rows if isinstance(row, dict) and "public_key" in row]


def page(url: str) -> dict[str, Any]:
    """Return the JSON object at an address; empty if there is none."""
    answer = get(url)
    return {} if answer is None else _object(answer)


def _problem(answer: httpx.Response | None) -> tuple[str, str]:
    """Return detail and remedy of a service's problem. What something else answers is not quoted."""
    if answer is None or slug_of(answer.content) == "unknown":
        return "it does not answer", "see the service's log"
    problem = _object(answer)
    return str(problem.get("detail")), str(problem.get("remedy"))


def _object(answer: httpx.Response) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(answer.content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _url(host: str, port: int) -> str:
    host = _ANYWHERE.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

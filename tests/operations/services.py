"""Server, shuffler and issuer as processes that obey file modes, with a clock that may be set."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import httpx

_PATIENCE = 180.0
_SECONDS = 3.0
_UNPRIVILEGED = (
    "setpriv",
    "--bounding-set=-dac_override,-dac_read_search",
    "--inh-caps=-dac_override,-dac_read_search",
)
"""Root may write what nobody may; services that run as users of their own may not, nor may these."""
_CLOCK = "import time; right = time.time; time.time = lambda: right() + float(open({path!r}).read()); "
"""A machine whose clock is set while a service runs; with libfaketime its threads also wait ten times as long."""
_DOCTOR = """
import json, os, sys, time
from privateer_lab.cli.command_line import main
usual = dict(os.environ)
right = time.time
for role, settings, clock in json.loads(sys.argv[1]):
    ahead = float(open(clock).read()) if os.path.exists(clock) else 0.0
    time.time = lambda: right() + ahead
    os.environ.clear()
    os.environ.update(usual | settings)
    try:
        main(["doctor", role, "--json"])
    except SystemExit as stop:
        assert stop.code in (None, 0, 1), stop.code
"""
"""One process for all services: most of the time of a doctor is spent on imports."""


class Role(StrEnum):
    """Which service."""

    SERVER = "server"
    SHUFFLER = "shuffler"
    ISSUER = "issuer"


@dataclass
class ServiceProcess:
    """A service process, with its settings, log and clock, which can be started again.

    Attributes
    ----------
    settings
        Its environment.
    log
        The file of its log.
    http
        What asks it: each client reads all certificates, so there is one for all.
    """

    role: Role
    settings: dict[str, str]
    log: Path
    http: httpx.Client
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def public(self) -> str:
        return f"http://127.0.0.1:{self.settings['PRIVATEER_PORT']}"

    @property
    def private(self) -> str:
        return f"http://127.0.0.1:{self.settings['PRIVATEER_ADMIN_PORT']}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, if it does not run."""
        if not self.is_running:
            clock = _CLOCK.format(path=str(self.clock)) if self.clock.exists() else ""
            code = (
                f"{clock}from privateer_{self.role}.app import main; main({'[]' if self.role is Role.SERVER else ''})"
            )
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(_command("-c", code), env=self._environment(), stderr=log)

    def wait(self) -> None:
        """Wait until it is ready."""
        deadline = time.monotonic() + _PATIENCE
        while self.readiness() != "ready":
            assert self.is_running, f"the {self.role} ended: {self.last_line()}"
            assert time.monotonic() < deadline, f"the {self.role} is not ready: {self.readiness()}"
            time.sleep(0.2)

    def await_answer(self) -> None:
        """Wait until it answers, whatever it says, or has ended."""
        deadline = time.monotonic() + _PATIENCE
        while self.is_running and self.readiness() == "no answer" and time.monotonic() < deadline:
            time.sleep(0.2)

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop it, if it runs."""
        if self.is_running and self._process is not None:
            self._process.send_signal(number)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def set_clock(self, seconds: int) -> None:
        """Set its clock ahead, or behind."""
        self.clock.write_text(f"{seconds:+d}")

    def readiness(self) -> str:
        """What ``/readyz`` says: ``ready``, why not, or that there is no answer."""
        try:
            answer = self.http.get(f"{self.public}/readyz", timeout=_SECONDS)
        except httpx.TransportError:
            return "no answer"
        return "ready" if answer.is_success else str(answer.json().get("detail", answer.status_code))

    def metrics(self) -> str | None:
        """What ``/metrics`` shows; None if it does not answer."""
        try:
            answer = self.http.get(f"{self.private}/metrics", timeout=_SECONDS)
        except httpx.TransportError:
            return None
        return answer.text if answer.is_success else None

    def last_line(self) -> str:
        """The end of its log."""
        return self.log.read_text().strip().rpartition("\n")[2]

    def _environment(self) -> dict[str, str]:
        return os.environ | self.settings

    @property
    def clock(self) -> Path:
        """The file with the seconds by which the clock of its machine is wrong, if it is."""
        return self.log.with_suffix(".clock")


def examine(services: Iterable[ServiceProcess]) -> list[str]:
    """What ``privateer doctor SERVICE`` finds that is not fine at each, as its user and with its settings."""
    listing = json.dumps([(service.role, service.settings, str(service.clock)) for service in services])
    process = subprocess.run(_command("-c", _DOCTOR, listing), check=False, capture_output=True, text=True, timeout=300)
    decoder, text, lines = json.JSONDecoder(), process.stdout.strip(), list[str]()
    while text:
        document, end = decoder.raw_decode(text)
        wrong = [check for check in document["checks"] if check["level"] != "ok"]
        lines += [f"{check['level']} {check['service']} {check['check']}: {check['detail']}" for check in wrong]
        text = text[end:].strip()
    return lines + [process.stderr.strip()] * bool(process.stderr.strip())


def _command(*arguments: str) -> list[str]:
    prefix = _UNPRIVILEGED if os.geteuid() == 0 else ()
    return [*prefix, sys.executable, "-P", *arguments]

"""The system's Firefox, by Marionette: its own protocol, JSON over a socket."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from privateer_lab.services.processes import free_port

_START_SECONDS = 60.0
_SCRIPT_MILLISECONDS = 240_000
# A promise's value, or its error, as a script of Marionette ends.
_RUN = """const end = arguments[1];
const run = async () => ({})(...arguments[0]);
run().then((value) => end({{ value }}), (error) => end({{ error: `${{error}}` }}));"""


class Marionette:
    """A session of Firefox."""

    def __init__(self, port: int) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                self._socket = socket.create_connection(("127.0.0.1", port))
                break
            except OSError:
                assert time.monotonic() < deadline, "Firefox does not listen"
                time.sleep(0.1)
        self._stream, self._number = self._socket.makefile("rb"), 0
        self._read()
        self.call("WebDriver:NewSession")
        self.call("WebDriver:SetTimeouts", script=_SCRIPT_MILLISECONDS)

    def _read(self) -> Any:
        size = b"".join(iter(lambda: self._stream.read(1).replace(b":", b""), b""))
        return json.loads(self._stream.read(int(size)))

    def call(self, command: str, **parameters: Any) -> Any:
        """Return what Firefox answers to a command."""
        self._number += 1
        message = json.dumps([0, self._number, command, parameters]).encode()
        self._socket.sendall(b"%d:%s" % (len(message), message))
        _, _, error, value = self._read()
        assert error is None, error
        return value

    def close(self) -> None:
        """End the session."""
        self.call("WebDriver:DeleteSession")
        self._stream.close()
        self._socket.close()

    def new_tab(self) -> "Tab":
        """Open a tab."""
        return Tab(self, self.call("WebDriver:NewWindow", type="tab")["handle"])


class Tab:
    """A tab, with what the tests use of a page of Playwright."""

    def __init__(self, firefox: Marionette, handle: str) -> None:
        self._firefox, self._handle = firefox, handle

    def _call(self, command: str, **parameters: Any) -> Any:
        self._firefox.call("WebDriver:SwitchToWindow", handle=self._handle)
        return self._firefox.call(command, **parameters)

    def goto(self, url: str) -> None:
        """Go to an address, and wait until its page is there."""
        self._call("WebDriver:Navigate", url=url)

    def evaluate(self, function: str, argument: Any = None) -> Any:
        """Return what a function of the page returns, once its promise is kept."""
        outcome = self._call(
            "WebDriver:ExecuteAsyncScript", script=_RUN.format(function), args=[[argument]], sandbox=None
        )["value"]
        assert "error" not in outcome, outcome["error"]
        return outcome.get("value")


@contextmanager
def firefox() -> Iterator[Marionette | None]:
    """The Firefox that PRIVATEER_FIREFOX or the path has; None where there is none."""
    path = os.environ.get("PRIVATEER_FIREFOX") or shutil.which("firefox-esr") or shutil.which("firefox")
    if not path:
        yield None
        return
    with tempfile.TemporaryDirectory() as profile:
        port = free_port()
        Path(profile, "user.js").write_text(f'user_pref("marionette.port", {port});\n')
        command = [path, "--headless", "--marionette", "--profile", profile]
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            with closing(Marionette(port)) as session:
                yield session
        finally:
            running.terminate()
            running.wait(timeout=30)

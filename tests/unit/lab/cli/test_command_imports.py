"""The large packages that each command imports are listed, so that none waits for what it does not use."""

import json

from tests.documents import imports

LIGHT = ("list", "answer", "backup", "doctor", "log", "token", "up", "demo")
"""Commands that ask a server, or begin others."""


def test_commands_import_the_listed_packages_alone() -> None:
    listed = json.loads(imports.COMMANDS_LIST.read_text())
    assert imports.command_packages() == listed, "if it has to: python -m tests.documents imports"
    assert {listed[name] for name in LIGHT} == {"httpx rich typer"}

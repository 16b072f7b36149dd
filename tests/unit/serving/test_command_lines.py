"""The command lines of the services: help, version, and unknown arguments."""

import pytest

from privateer_core.serving.logs import BUILD
from privateer_issuer.app import main as issuer
from privateer_server.settings import read_settings
from privateer_shuffler.app import main as shuffler

SERVICES = {"server": lambda arguments: read_settings({}, arguments), "shuffler": shuffler, "issuer": issuer}


@pytest.fixture(params=SERVICES)
def service(request, capsys):
    """The name of a service, and what its command line prints: exit code, output and errors."""

    def run(*arguments):
        with pytest.raises(SystemExit) as stop:
            SERVICES[request.param](arguments)
        return stop.value.code, *capsys.readouterr()

    return f"privateer-{request.param}", run


def test_help_and_version_of_a_service(service):
    """Neither needs a setting."""
    name, run = service
    assert run("--version") == (0, f"{name} {BUILD}\n", "")
    code, text, _ = run("--help")
    assert code == 0
    assert "docs/configuration.md" in " ".join(text.split())


@pytest.mark.parametrize("argument", ["--prot=1", "folder"])
def test_unknown_arguments_are_refused_in_one_line(service, argument):
    """A mistyped flag must not start a service with its default."""
    name, run = service
    assert run(argument) == (2, "", f"{name}: unrecognized arguments: {argument} (see {name} --help)\n")

"""The command lines of the services: what they are, which version, and what they do not know."""

import pytest

from privateer_core.serving.logs import BUILD
from privateer_issuer.app import main as issuer
from privateer_server.settings import read_settings
from privateer_shuffler.app import main as shuffler

SERVICES = {"server": lambda arguments: read_settings({}, arguments), "shuffler": shuffler, "issuer": issuer}


@pytest.fixture(params=SERVICES)
def service(request, capsys):
    """The name of a service, and what its command line prints: exit code, output and errors."""

    def said(*arguments):
        with pytest.raises(SystemExit) as stop:
            SERVICES[request.param](arguments)
        return stop.value.code, *capsys.readouterr()

    return f"privateer-{request.param}", said


def test_a_service_says_what_it_is_and_which_version(service):
    """Neither needs a setting."""
    name, said = service
    assert said("--version") == (0, f"{name} {BUILD}\n", "")
    code, text, _ = said("--help")
    assert code == 0
    assert "docs/configuration.md" in " ".join(text.split())


@pytest.mark.parametrize("argument", ["--prot=1", "folder"])
def test_what_a_service_does_not_know_is_refused_in_one_line(service, argument):
    """A mistyped flag must not start a service with its default."""
    name, said = service
    assert said(argument) == (2, "", f"{name}: unrecognized arguments: {argument} (see {name} --help)\n")

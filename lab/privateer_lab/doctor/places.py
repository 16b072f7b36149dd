"""Where services have their data and listen: as ``privateer up`` lays them out, or as their environment says."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from privateer_core.errors import SpecError
from privateer_issuer.settings import read_settings as read_issuer
from privateer_lab.doctor.checks import Check, Checkup
from privateer_lab.doctor.files import check_secret
from privateer_lab.doctor.issuer import IssuerPlace, examine_issuer
from privateer_lab.doctor.key_files import check_public_half, signing_key
from privateer_lab.doctor.listeners import Listeners
from privateer_lab.doctor.server import examine_server
from privateer_lab.doctor.shuffler import examine_shuffler
from privateer_lab.services.processes import IssuerProcess, environments
from privateer_server.settings import ServerSettings
from privateer_server.settings import read_settings as read_server
from privateer_shuffler.settings import ShufflerSettings
from privateer_shuffler.settings import read_settings as read_shuffler

_ISSUER_PORT: Final = 8004
_NO_TOKEN: Final = {"PRIVATEER_ADMIN_TOKEN": "the doctor asks for nothing that needs one"}


@dataclass(frozen=True)
class ServicePlaces:
    """What the doctor looks at.

    Attributes
    ----------
    server, shuffler, issuer
        Those of the services that are here.
    sender
        The private key that signs uploads, and the file with its public half, if they are here.
    """

    server: ServerSettings | None = None
    shuffler: ShufflerSettings | None = None
    sender: tuple[Path, Path] | None = None
    issuer: IssuerPlace | None = None

    def examine(self) -> list[Check]:
        """Look at all of it."""
        findings = list[Check]()
        if self.server:
            findings += examine_server(self.server).all
        if self.shuffler:
            trusted = self.server.shuffler_keys if self.server else None
            findings += examine_shuffler(self.shuffler, trusted).all
        if self.issuer:
            findings += examine_issuer(self.issuer).all
        if self.sender:
            findings += _examine_sender(*self.sender)
        return findings


def _examine_sender(private: Path, public: Path) -> list[Check]:
    found = Checkup("sender")
    check_secret(found, private)
    if key := signing_key(found, private, "--data"):
        check_public_half(found, key, public)
    return found.all


def of_up(data: Path, ports: tuple[int, int, int, int], environment: Mapping[str, str]) -> ServicePlaces:
    """Return what is in the folder of ``privateer up`` with these ports: public ones, then private ones.

    Raises
    ------
    SpecError
        If there is neither a server nor a shuffler.
    """
    given = environments(data, ports, "")
    issuer = data / "issuer"
    if issuer.exists():  # then both services take reports with tokens alone
        issuing = IssuerProcess("", _ISSUER_PORT)
        for name, port in zip(("server", "shuffler"), ports, strict=False):
            given[name] |= issuing.checks(data, f"http://127.0.0.1:{port}")
    server = read_server({**environment, **given["server"], **_NO_TOKEN}, [])
    shuffler = read_shuffler({**environment, **given["shuffler"]})
    if not (server.data.exists() or shuffler.data.exists()):
        remedy = "name the folder of privateer up; of other services: privateer doctor server, or shuffler"
        raise SpecError(f"there is neither a server nor a shuffler in {data}", field="--data", remedy=remedy)
    private, public = data / "sender.key", data / "senders" / "sender.pub"
    # Both are made together: where one is missing its disk may be, too.
    place = IssuerPlace(issuer, data / "tokens" / "issuer.json") if issuer.exists() else None
    return ServicePlaces(server, shuffler, (private, public) if private.exists() else None, place)


def of_environment(service: str, environment: Mapping[str, str], data: Path | None) -> ServicePlaces:
    """Return the one service that the environment sets; ``data`` is its folder, if given.

    Raises
    ------
    SpecError
        If a setting is out of range.
    """
    folder = str(data or environment.get("PRIVATEER_DATA") or Path("data") / service)
    given = {**_NO_TOKEN, **environment, "PRIVATEER_DATA": folder}
    if service == "issuer":
        return ServicePlaces(issuer=_issuer(given))
    return (
        ServicePlaces(server=read_server(given, []))
        if service == "server"
        else ServicePlaces(shuffler=read_shuffler(given))
    )


def _issuer(given: Mapping[str, str]) -> IssuerPlace:
    settings, secrets = read_issuer(given), given.get("PRIVATEER_ATTESTATION_SECRETS")
    listeners = Listeners((settings.host, settings.port), (settings.admin_host, settings.admin_port))
    return IssuerPlace(settings.data, settings.public_keys_file, listeners, Path(secrets) if secrets else None)

"""Where services have their data and listen: as ``privateer up`` lays them out, or as their environment says."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from privateer_core.errors import SpecError
from privateer_issuer.settings import read_settings as read_issuer
from privateer_lab.doctor.listeners import Listeners
from privateer_lab.services.processes import IssuerProcess, environments
from privateer_server.settings import ServerSettings
from privateer_server.settings import read_settings as read_server
from privateer_shuffler.settings import ShufflerSettings
from privateer_shuffler.settings import read_settings as read_shuffler

_NO_TOKEN: Final = {"PRIVATEER_ADMIN_TOKEN": "the doctor asks for nothing that needs one"}


@dataclass(frozen=True)
class IssuerPlace:
    """Where an issuer is."""

    # data, shown: its folder, and the file of its public keys
    data: Path
    shown: Path
    listeners: Listeners | None = None  # where it listens; None: it is not asked
    secrets: Path | None = None  # the file of what it shares with the application's backend, if there is one


@dataclass(frozen=True)
class ServicePlaces:
    """What the doctor looks at."""

    # server, shuffler, issuer: those of the services that are here
    server: ServerSettings | None = None
    shuffler: ShufflerSettings | None = None
    # the private key that signs uploads, and the file with its public half, if they are here
    sender: tuple[Path, Path] | None = None
    issuer: IssuerPlace | None = None


def of_up(
    data: Path, ports: tuple[int, int, int, int], issuer_ports: tuple[int, int], environment: Mapping[str, str]
) -> ServicePlaces:
    """Return what is in the folder of ``privateer up`` with these ports: public ones, then private ones."""
    given = environments(data, ports, "")
    issuer = data / "issuer"
    if issuer.exists():  # then both services take reports with tokens alone
        issuing = IssuerProcess("", issuer_ports[0])
        for name, port in zip(("server", "shuffler"), ports, strict=False):
            given[name] |= issuing.checks(data, f"http://127.0.0.1:{port}")
    server = read_server({**environment, **given["server"], **_NO_TOKEN}, [])
    shuffler = read_shuffler({**environment, **given["shuffler"]})
    if not (server.data.exists() or shuffler.data.exists()):
        remedy = "name the folder of privateer up; of other services: privateer doctor server, or shuffler"
        raise SpecError(f"there is neither a server nor a shuffler in {data}", field="--data", remedy=remedy)
    private, public = data / "sender.key", data / "senders" / "sender.pub"
    # Both are made together: where one is missing its disk may be, too.
    listeners = Listeners(*(("127.0.0.1", port) for port in issuer_ports))
    place = IssuerPlace(issuer, data / "tokens" / "issuer.json", listeners) if issuer.exists() else None
    return ServicePlaces(server, shuffler, (private, public) if private.exists() else None, place)


def of_environment(service: str, environment: Mapping[str, str], data: Path | None) -> ServicePlaces:
    """Return the one service that the environment sets; ``data`` is its folder, if given."""
    folder = str(data or environment.get("PRIVATEER_DATA") or Path("data") / service)
    given = {**_NO_TOKEN, **environment, "PRIVATEER_DATA": folder}
    if service == "server":
        return ServicePlaces(server=read_server(given, []))
    if service == "shuffler":
        return ServicePlaces(shuffler=read_shuffler(given))
    issuer = read_issuer(given)
    shown, secrets = issuer.public_keys_file, issuer.attestation_secrets
    return ServicePlaces(issuer=IssuerPlace(issuer.data, shown, Listeners.of(issuer), secrets))

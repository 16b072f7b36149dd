"""The OpenAPI documents of all services, as they answer them."""

import asyncio
import json
import tempfile
from pathlib import Path

import httpx
from starlette.types import ASGIApp

from privateer_issuer.app import create_app as create_issuer
from privateer_issuer.settings import IssuerSettings
from privateer_server.app import create_app as create_server
from privateer_server.settings import ServerSettings
from privateer_shuffler.app import create_app as create_shuffler
from privateer_shuffler.settings import ShufflerSettings
from tests.support.servers import TOKEN

FOLDER = Path("docs/openapi")


def documents() -> dict[Path, str]:
    """The text of each file."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        server = create_server(ServerSettings(data / "server", TOKEN, ()))
        settings = ShufflerSettings("http://server", data / "shuffler", data / "shuffler.pub", min_batch=2)
        issuing = IssuerSettings(data / "issuer", ("test",), "issuer", "open", public_keys_file=data / "issuer.json")
        apps = {"server": server, "shuffler": create_shuffler(settings), "issuer": create_issuer(issuing)}
        return {FOLDER / f"{name}.json": asyncio.run(_document(app)) for name, app in apps.items()}


async def _document(app: ASGIApp) -> str:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as client:
        answer = await client.get("/openapi.json")
    return json.dumps(answer.json(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"

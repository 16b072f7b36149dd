"""The OpenAPI documents of all services, as they answer them, with examples."""

import asyncio
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from starlette.types import ASGIApp

from privateer_issuer.app import create_app as create_issuer
from privateer_issuer.settings import IssuerSettings
from privateer_server.app import create_app as create_server
from privateer_server.settings import ServerSettings
from privateer_shuffler.app import create_app as create_shuffler
from privateer_shuffler.settings import ShufflerSettings
from tests.documents.examples import add_examples
from tests.support.servers import TOKEN

FOLDER = Path("docs/openapi")


def documents() -> dict[Path, str]:
    """The text of each file."""
    return {
        FOLDER / f"{name}.json": json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        for name, document in service_documents().items()
    }


@cache
def service_documents() -> dict[str, dict[str, Any]]:
    """Return the OpenAPI document of each service, with examples."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        server = create_server(ServerSettings(data=data / "server", admin_token=TOKEN, shuffler_keys=()))
        settings = ShufflerSettings(
            server_url="http://server", data=data / "shuffler", public_key_file=data / "shuffler.pub", min_batch=2
        )
        issuing = IssuerSettings(
            data=data / "issuer",
            experiments=("test",),
            name="issuer",
            attestation_verifier="open",
            public_keys_file=data / "issuer.json",
        )
        apps = {"server": server, "shuffler": create_shuffler(settings), "issuer": create_issuer(issuing)}
        documents_by_service = {name: asyncio.run(_document(app)) for name, app in apps.items()}
    add_examples(documents_by_service)
    return documents_by_service


async def _document(app: ASGIApp) -> dict[str, Any]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as client:
        answer = await client.get("/openapi.json")
    return dict(answer.json())

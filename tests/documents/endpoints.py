"""The page of all routes, from the OpenAPI documents."""

from pathlib import Path
from typing import Any

from tests.documents import openapi

PAGE = Path("docs/reference/endpoints.md")
_METHODS = ("get", "post", "put", "patch", "delete")
_HEAD = """# Endpoints

Every route of the services. Their OpenAPI documents have the fields of requests and answers too:
[server](../openapi/server.json), [shuffler](../openapi/shuffler.json),
[issuer](../openapi/issuer.json). Refusals are [problems](../problems.md).
`/metrics` and what needs the admin token are at the
[private listener](../operations/install.md#public-and-private-listeners) alone.

openapi-typescript and openapi-python-client make typed clients of the documents. Give the second one a file with
`--config`, so that it sends reports as bytes and reads keys as JSON:

```yaml
content_type_overrides:
  application/msgpack: application/octet-stream
  application/private-token-issuer-directory: application/json
```
"""


def documents() -> dict[Path, str]:
    """The text of the file."""
    sections = [_section(name, document) for name, document in openapi.service_documents().items()]
    return {PAGE: "\n".join([_HEAD, *sections])}


def _section(name: str, document: dict[str, Any]) -> str:
    rows = [
        _row(method, path, operation)
        for path, item in sorted(document["paths"].items())
        for method, operation in item.items()
        if method in _METHODS
    ]
    return f"## {name.capitalize()}\n\n| route | what it does | answers |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def _row(method: str, path: str, operation: dict[str, Any]) -> str:
    description = operation.get("description") or operation.get("summary", "")
    first = " ".join(description.split("\n\n")[0].split()).replace("|", "\\|")
    return f"| `{method.upper()} {path}` | {first} | {', '.join(sorted(operation['responses']))} |"

"""Clients that others' generators make of the OpenAPI documents are typed, and call running services."""

import json
import sys
from pathlib import Path

import httpx
import pytest

from privateer_lab.services.processes import Services
from tests.documents.openapi import service_documents
from tests.interop.programs import NODE_FOLDER, PYTHON, run

pytestmark = pytest.mark.interop
HERE = Path(__file__).parent
TOOLS = NODE_FOLDER / "node_modules" / ".bin"


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the document of each service."""
    folder = tmp_path_factory.mktemp("documents")
    for name, document in service_documents().items():
        (folder / f"{name}.json").write_text(json.dumps(document))
    return folder


def arguments(services: Services) -> list[str]:
    return [services.server, services.shuffler, services.admin, services.token]


def test_redocly_finds_no_fault(documents: Path, services: Services) -> None:
    """Whole and public documents have no fault; planted: a document without its servers."""
    for name in ("server", "shuffler"):
        (documents / f"public-{name}.json").write_bytes(httpx.get(f"{getattr(services, name)}/openapi.json").content)
    lint = [TOOLS / "redocly", "lint", "--extends", "recommended", "--format", "json"]
    for document in documents.glob("*.json"):
        result = json.loads(run([*lint, document], NODE_FOLDER))
        assert result["totals"] == {"errors": 0, "warnings": 0, "ignored": 0}, result
    planted = {key: part for key, part in service_documents()["issuer"].items() if key != "servers"}
    (documents / "planted").write_text(json.dumps(planted))
    with pytest.raises(AssertionError, match="no-empty-servers"):
        run([*lint, documents / "planted"], NODE_FOLDER)


def test_clients_in_python_are_typed_and_call_services(documents: Path, services: Services, tmp_path: Path) -> None:
    for name in service_documents():
        options = ["--path", documents / f"{name}.json", "--output-path", tmp_path / f"{name}_client", "--meta", "none"]
        generator = PYTHON.with_name("openapi-python-client")
        warnings = run([generator, "generate", *options, "--config", HERE / "generator.yml"], tmp_path)
        assert warnings.count("WARNING") <= (name == "server"), warnings  # it takes one media type for a body
    (tmp_path / "calls.py").write_text((HERE / "calls.py").read_text())
    check = [sys.executable, "-m", "mypy", "--strict", "--python-executable", PYTHON, "--config-file", "", "."]
    run([*check, "--cache-dir", tmp_path / "cache"], tmp_path)
    assert run([PYTHON, "calls.py", *arguments(services)], tmp_path) == "called\n"


def test_clients_in_typescript_are_typed_and_call_services(documents: Path, services: Services, tmp_path: Path) -> None:
    (tmp_path / "node_modules").symlink_to(NODE_FOLDER / "node_modules")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "calls.ts").write_text((HERE / "calls.ts").read_text())
    for name in service_documents():
        run([TOOLS / "openapi-typescript", documents / f"{name}.json", "-o", tmp_path / f"{name}.ts"], tmp_path)
    strict = ["--strict", "--exactOptionalPropertyTypes", "--noUncheckedIndexedAccess"]
    run([TOOLS / "tsc", *strict, "--target", "es2022", "--module", "nodenext", "calls.ts"], tmp_path)
    assert run(["node", "calls.js", *arguments(services)], tmp_path) == "called\n"

"""Privateer's addresses in all metadata: those of mkdocs.yml, and no address while it has none."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from tests.support.wheels import ROLES, ROOT

_URLS = re.compile(r"\[project\.urls\]\n(?:[^\[\n].*\n)*\n")


def documents(code: str | None = None, site: str | None = None) -> dict[Path, str]:
    """Return every file of metadata with the addresses ``repo_url`` and ``site_url``, if not those of mkdocs.yml."""
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    urls = {"Source": code or config.get("repo_url"), "Documentation": site or config.get("site_url")}
    links = {name: url for name, url in urls.items() if url}
    texts = {
        ROOT / role / "pyproject.toml": _project((ROOT / role / "pyproject.toml").read_text(), links) for role in ROLES
    }
    package = ROOT / "sdk" / "js" / "package.json"
    return texts | {package: _package(json.loads(package.read_text()), links)}


def _project(text: str, urls: dict[str, str]) -> str:
    rows = "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    section = f"[project.urls]\n{rows}\n" if urls else ""
    return _URLS.sub("", text).replace("[tool.hatch", f"{section}[tool.hatch", 1)


def _package(package: dict[str, Any], urls: dict[str, str]) -> str:
    without = {key: value for key, value in package.items() if key not in ("repository", "homepage")}
    source, page = urls.get("Source"), urls.get("Documentation")
    repository = {"repository": {"type": "git", "url": source, "directory": "sdk/js"}} if source else {}
    return json.dumps(without | repository | ({"homepage": page} if page else {}), indent=2, ensure_ascii=False) + "\n"

"""What a release consists of: packages, images, inventories, documents and checksums, in one folder."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
ROLES: Final = ("shared", "client", "shuffler", "issuer", "server", "lab", "papers")
IMAGES: Final = ("server", "shuffler", "issuer", "load")
PYTHON: Final = Path(sys.executable)
CHECKSUMS: Final = "SHA256SUMS"
_SDK: Final = ROOT / "sdk" / "js"


class ReleaseError(Exception):
    """A step of the release did not do what it should; the message says which and why."""


def run(*command: str | Path, folder: Path = ROOT, environment: dict[str, str] | None = None) -> str:
    """Run a program.

    Returns
    -------
    str
        What it printed.

    Raises
    ------
    ReleaseError
        It failed; the message has the end of what it said.
    """
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-2000:]
        raise ReleaseError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{said}")
    return done.stdout


def version() -> str:
    """The version that all distributions have.

    Raises
    ------
    ReleaseError
        They disagree.
    """
    found = {role: tomllib.loads((ROOT / role / "pyproject.toml").read_text())["project"]["version"] for role in ROLES}
    found["sdk/js"] = json.loads((_SDK / "package.json").read_text())["version"]
    if len(set(found.values())) != 1:
        raise ReleaseError(f"versions disagree: {found}; make version VERSION=... writes one everywhere")
    return str(found["shared"])


def revision() -> str:
    """The commit that is released, marked where the checkout has changes."""
    commit = run("git", "rev-parse", "HEAD").strip()
    return commit + ("-changed" if run("git", "status", "--porcelain", "--untracked-files=no").strip() else "")


def commit_time() -> str:
    """Seconds since 1970 of the commit: archives of one commit have the same bytes."""
    return run("git", "log", "-1", "--format=%ct").strip()


def entry(changelog: str, wanted: str) -> tuple[str, str]:
    """A version's entry of the changelog, or what is not released yet.

    Returns
    -------
    title, text
        The entry's heading, and what stands below it.

    Raises
    ------
    ReleaseError
        It has neither.
    """
    parts = re.split(r"^## (.+)$", changelog, flags=re.MULTILINE)
    entries = dict(zip(parts[1::2], parts[2::2], strict=True))
    for title, text in entries.items():
        if title.split()[0].strip("[]") == wanted and text.strip():
            return title, text.strip()
    if entries.get("Unreleased", "").strip():
        return "Unreleased", entries["Unreleased"].strip()
    raise ReleaseError(f"CHANGELOG.md has no entry for {wanted}, and nothing under Unreleased")


def python_packages(out: Path) -> None:
    """Make a wheel and a source archive of every distribution."""
    environment = dict(os.environ) | {"SOURCE_DATE_EPOCH": commit_time()}
    for role in ROLES:
        run(PYTHON, "-m", "hatchling", "build", "-d", out / "python", folder=ROOT / role, environment=environment)


def javascript_package(out: Path) -> None:
    """Make the tarball of the SDK for JavaScript, with its declarations."""
    (out / "javascript").mkdir()
    run("npm", "ci", "--ignore-scripts", "--no-fund", "--no-audit", folder=_SDK)
    run("npm", "run", "types", folder=_SDK)
    run("npm", "pack", "--ignore-scripts", "--pack-destination", out / "javascript", folder=_SDK)


def documents(out: Path) -> None:
    """Make the OpenAPI documents, the vectors of the wire format, and the documentation as a site."""
    run(PYTHON, "-m", "tests.documents")
    shutil.copytree(ROOT / "docs" / "openapi", out / "openapi")
    environment = dict(os.environ) | {"NO_MKDOCS_2_WARNING": "1"}
    run("npm", "ci", "--ignore-scripts", "--no-fund", "--no-audit", folder=ROOT / "requirements" / "katex")
    run(PYTHON.parent / "mkdocs", "build", "--quiet", "-d", out / "site", environment=environment)
    for folder, name in ((ROOT / "docs" / "wire" / "all", "vectors"), (out / "site", "site")):
        _pack(folder, out / f"{name}.tar.gz", name)
    shutil.rmtree(out / "site")


def inventories(out: Path) -> None:
    """List what images and SDK contain, in CycloneDX: our distributions, and the pinned packages with their hashes."""
    folder = out / "sbom"
    folder.mkdir()
    for role in IMAGES:
        project = ROOT / ("lab" if role == "load" else role) / "pyproject.toml"
        output = ("--output-reproducible", "--of", "JSON", "-o", folder / f"{role}.cdx.json")
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as listed:
            required = ("privateer-core", "privateer-client") if role == "load" else ("privateer-core",)
            pins = "".join(f"{name}=={version()}\n" for name in required)
            listed.write(pins + (ROOT / "requirements" / f"{role}.txt").read_text())
            listed.flush()
            run(PYTHON.parent / "cyclonedx-py", "requirements", listed.name, "--pyproject", project, *output)
    inventory = json.loads(run("npm", "sbom", "--sbom-format", "cyclonedx", "--omit", "dev", folder=_SDK))
    # npm gives the SDK the name of its folder.
    inventory["metadata"]["component"]["name"] = json.loads((_SDK / "package.json").read_text())["name"]
    (folder / "javascript.cdx.json").write_text(json.dumps(inventory, indent=2) + "\n")


def images(out: Path) -> None:
    """Build the images, labelled with version and commit, and write down what they are."""
    labels = {
        "org.opencontainers.image.version": version(),
        "org.opencontainers.image.revision": revision(),
        "org.opencontainers.image.licenses": "Apache-2.0",
    }
    made = {}
    for role in IMAGES:
        tag, named = f"privateer-{role}:{version()}", labels | {"org.opencontainers.image.title": f"privateer-{role}"}
        words = [word for name, value in named.items() for word in ("--label", f"{name}={value}")]
        revised = ("--build-arg", f"revision={revision()}")
        run("docker", "build", "--quiet", "--target", role, "--tag", tag, *revised, *words, ".")
        facts = inspected(tag)
        made[tag] = {"id": facts["Id"], "bytes": facts["Size"], "labels": facts["Config"]["Labels"]}
    (out / "images.json").write_text(json.dumps(made, indent=2) + "\n")


def inspected(tag: str) -> dict[str, Any]:
    """What Docker knows of an image."""
    [facts] = json.loads(run("docker", "image", "inspect", tag))
    return dict(facts)


def changes(out: Path) -> str:
    """Write the changelog's entry; return its heading."""
    title, text = entry((ROOT / "CHANGELOG.md").read_text(), version())
    (out / "CHANGES.md").write_text(f"# Privateer {version()}\n\n{text}\n")
    return title


def checksums(out: Path) -> None:
    """Write the SHA-256 of every file, as `sha256sum --check` reads it."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(out)}\n" for path in files(out)]
    (out / CHECKSUMS).write_text("".join(lines))


def files(out: Path) -> Iterator[Path]:
    """All files of a release but the checksums."""
    return (path for path in sorted(out.rglob("*")) if path.is_file() and path.name != CHECKSUMS)


def _pack(folder: Path, archive: Path, name: str) -> None:
    """Pack a folder; its entries have the commit's time and nobody's name, in order."""
    moment = int(commit_time())

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime, member.uid, member.gid, member.uname, member.gname = moment, 0, 0, "", ""
        return member

    with tarfile.open(archive, "w:gz") as packed:
        packed.add(folder, name, filter=plain)

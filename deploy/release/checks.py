"""What is checked of a release: its packages as strangers install them, its images as they run."""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from deploy.release.artifacts import CHECKSUMS, IMAGES, PYTHON, ROOT, ReleaseError, files, inspected, run, version

SERVICES: Final = ("server", "shuffler", "issuer")
_PATIENCE: Final = 60.0
"""Seconds in which a service of an image must be healthy."""
_SDK: Final = ROOT / "sdk" / "js"
_INSTALLED: Final = {
    "privateer-client": "from privateer_client import Client",
    "privateer-server": "import privateer_server.app",
    "privateer-lab[workbench]": "import privateer_lab.cli.command_line",
}
"""What a stranger installs, and what then works."""


def descriptions(out: Path) -> str:
    """An index takes and shows the Python packages."""
    packages = sorted((out / "python").iterdir())
    run(PYTHON, "-m", "twine", "check", "--strict", *packages)
    return f"twine check: {len(packages)} packages"


def installations(out: Path) -> str:
    """The wheels install into an empty environment, with others' packages from the index, and import."""
    for wanted, code in _INSTALLED.items():
        with tempfile.TemporaryDirectory() as folder:
            python = Path(folder) / "venv" / "bin" / "python"
            run(PYTHON, "-m", "venv", "--without-pip", python.parents[1])
            pip = (PYTHON, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check")
            run(*pip, "--find-links", out / "python", f"{wanted}=={version()}")
            run(python, "-c", code, folder=Path(folder), environment={"PATH": os.defpath})
    return f"pip install into an empty environment: {', '.join(_INSTALLED)}"


def javascript(out: Path) -> str:
    """The tarball's exports and types are what bundlers and Node resolve, and it installs without a dependency."""
    [tarball] = (out / "javascript").iterdir()
    run("npx", "--no-install", "publint", "--strict", tarball, folder=_SDK)
    run("npx", "--no-install", "attw", "--profile", "esm-only", "--no-emoji", tarball, folder=_SDK)
    with tempfile.TemporaryDirectory() as folder:
        run("npm", "install", "--no-fund", "--no-audit", "--prefix", folder, tarball)
        run("node", "--input-type=module", "-e", "import '@privateer/client'", folder=Path(folder))
    return "publint, are the types wrong, npm install"


def inventories(out: Path) -> str:
    """Every inventory is CycloneDX and lists each package that an image installs."""
    counts = {}
    for role in IMAGES:
        listed = json.loads((out / "sbom" / f"{role}.cdx.json").read_text())
        names = {component["name"] for component in listed.get("components", [])}
        lines = (ROOT / "requirements" / f"{role}.txt").read_text().splitlines()
        missing = {line.split("==")[0].split("[")[0] for line in lines if "==" in line} - names
        if listed.get("bomFormat") != "CycloneDX" or missing:
            raise ReleaseError(f"the inventory of {role} lacks {', '.join(sorted(missing)) or 'its format'}")
        counts[role] = len(names)
    return "inventories: " + ", ".join(f"{role} {count} packages" for role, count in counts.items())


def running(_: Path) -> str:
    """Every image says its version; the services become healthy as an unprivileged user on a read-only system."""
    for role in IMAGES:
        tag = f"privateer-{role}:{version()}"
        distribution = f"privateer-{'lab' if role == 'load' else role}"
        code = f"from importlib.metadata import version; print(version('{distribution}'))"
        said = run("docker", "run", "--rm", "--read-only", "--entrypoint", "python", tag, "-c", code).strip()
        if said != version():
            raise ReleaseError(f"{tag} holds version {said}")
        if inspected(tag)["Config"]["User"] in ("", "root", "0"):
            raise ReleaseError(f"{tag} runs as root")
    started: list[str] = []
    try:
        for role in SERVICES:
            # The shuffler asks the server, which it finds where all share the first one's network.
            network = ("--network", f"container:{started[0]}") if started else ()
            started.append(_start(f"privateer-{role}:{version()}", *network))
        for container in started:
            _await_health(container)
    finally:
        for container in reversed(started):
            run("docker", "rm", "--force", "--volumes", container)
    return f"docker run: {', '.join(IMAGES)}; healthy: {', '.join(SERVICES)}"


def _start(tag: str, *options: str) -> str:
    """Start a service as its image has it; the container."""
    settings = {
        "PRIVATEER_ADMIN_TOKEN": "token-of-the-release-check",
        "PRIVATEER_EXPERIMENTS": "release-check",
        "PRIVATEER_ATTESTATION_VERIFIER": "open",
        "PRIVATEER_SERVER_URL": "http://127.0.0.1:8002",
    }
    words = [word for name, value in settings.items() for word in ("--env", f"{name}={value}")]
    volumes = [word for folder in ("/data", "/trusted", "/senders", "/tokens") for word in ("--volume", folder)]
    command = ("docker", "run", "--detach", "--read-only", "--tmpfs", "/tmp", *words, *volumes)  # noqa: S108
    return run(*command, *options, tag).strip()


def _await_health(container: str) -> None:
    """Wait until a service's own check says that it is ready."""
    deadline = time.monotonic() + _PATIENCE
    while (state := inspected_state(container)) != "healthy":
        if time.monotonic() > deadline or state == "exited":
            said = subprocess.run(["docker", "logs", container], capture_output=True, text=True, check=False)
            raise ReleaseError(f"a service is {state}: {(said.stdout + said.stderr)[-1000:]}")
        time.sleep(0.5)


def inspected_state(container: str) -> str:
    """Whether a container has exited, or what its health check says."""
    form = "{{if .State.Running}}{{.State.Health.Status}}{{else}}exited{{end}}"
    return run("docker", "inspect", "--format", form, container).strip()


def checksums(out: Path) -> str:
    """Every file is listed with its checksum."""
    run("sha256sum", "--check", "--strict", "--quiet", CHECKSUMS, folder=out)
    listed = {line.split("  ", 1)[1] for line in (out / CHECKSUMS).read_text().splitlines()}
    if unlisted := {str(path.relative_to(out)) for path in files(out)} - listed:
        raise ReleaseError(f"without a checksum: {', '.join(sorted(unlisted))}")
    return f"sha256sum: {len(listed)} files"


CHECKS: Final[tuple[Callable[[Path], str], ...]] = (
    descriptions,
    installations,
    javascript,
    inventories,
    running,
    checksums,
)

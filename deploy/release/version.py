"""Write a new version everywhere and date the changelog's entry: python -m deploy.release.version 0.2.0."""

import argparse
import json
import re
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from deploy.release.artifacts import ROLES, ROOT, ReleaseError, entry, version

_VERSION: Final = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")
_NAMED: Final = re.compile(
    r"""(^version(?:\ =|:)\ "
    |"privateer-[a-z]+(?:\[[a-z,]+\])?==|newTag:\ ")([0-9a-z.]+)(?=")""",
    re.MULTILINE | re.VERBOSE,
)


def dated(changelog: str, wanted: str, day: date) -> str:
    """The changelog, whose unreleased entry is now a version's.

    Raises
    ------
    ReleaseError
        Nothing is unreleased, or the version has an entry.
    """
    title, _ = entry(changelog, wanted)
    if title != "Unreleased":
        raise ReleaseError(f"CHANGELOG.md has an entry for {wanted} already; choose a higher version")
    return changelog.replace("## Unreleased\n", f"## Unreleased\n\n## {wanted} - {day.isoformat()}\n", 1)


def written(text: str, old: str, new: str) -> str:
    """A TOML or YAML file that names our version, with a new one."""
    return _NAMED.sub(lambda found: found[1] + new if found[2] == old else found[0], text)


def set_json(path: Path, new: str) -> None:
    """Write a version into a package's JSON file, or its lock file."""
    package = json.loads(path.read_text())
    package["version"] = new
    if path.name == "package-lock.json":
        package["packages"][""]["version"] = new
    path.write_text(json.dumps(package, indent=2, ensure_ascii=False) + "\n")


def main() -> None:
    """Write the version that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("version", help="the version to release, as in 0.2.0 or 0.2.0rc1")
    new, old = parser.parse_args().version, version()
    if not _VERSION.fullmatch(new):
        raise ReleaseError(f"a version has three numbers, as in 0.2.0 or 0.2.0rc1, not {new!r}")
    changelog = ROOT / "CHANGELOG.md"
    text = dated(changelog.read_text(), new, datetime.now(UTC).date())
    files = ("CITATION.cff", "deploy/kubernetes/kustomization.yaml", *(f"{role}/pyproject.toml" for role in ROLES))
    for path in (ROOT / name for name in files):
        path.write_text(written(path.read_text(), old, new))
    for path in (ROOT / "sdk/js").glob("package*.json"):
        set_json(path, new)
    changelog.write_text(text)
    version()
    print(f"{old} is {new} now. Read CHANGELOG.md, commit, then run make release.")


if __name__ == "__main__":
    try:
        main()
    except ReleaseError as wrong:
        sys.exit(f"release: {wrong}")

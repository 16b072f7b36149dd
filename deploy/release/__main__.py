"""Make a release in dist/VERSION and check it: python -m deploy.release. It publishes nothing."""

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from deploy.release import artifacts, checks

STEPS: Final[tuple[Callable[[Path], object], ...]] = (
    artifacts.python_packages,
    artifacts.javascript_package,
    artifacts.documents,
    artifacts.inventories,
    artifacts.images,
    artifacts.checksums,
)


def main() -> None:
    """Make everything, check everything, and say what there is."""
    started = time.monotonic()
    out = artifacts.ROOT / "dist" / artifacts.version()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    title = artifacts.changes(out)
    print(f"Privateer {artifacts.version()} of commit {artifacts.revision()}, into {out.relative_to(artifacts.ROOT)}/")
    for step in STEPS:
        print(f"making   {step.__name__.replace('_', ' ')}", flush=True)
        step(out)
    for check in checks.CHECKS:
        print(f"checked  {check(out)}", flush=True)
    for path in artifacts.files(out):
        print(f"{path.stat().st_size / 1000:>10,.0f} kB  {path.relative_to(out)}")
    print(f"made and checked in {time.monotonic() - started:.0f} s")
    if title == "Unreleased":
        print("This is a rehearsal: the changelog's entry is not dated. make version VERSION=... dates it.")


if __name__ == "__main__":
    try:
        main()
    except artifacts.ReleaseError as wrong:
        sys.exit(f"release: {wrong}")

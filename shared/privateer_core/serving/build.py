"""Which build of Privateer this is: its version, and the commit that it was made from, where that is known."""

import os
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec

_CLONE: Final = Path(__file__).parents[3]


class Build(msgspec.Struct, frozen=True):
    """Version and commit of what runs; the commit is empty where a package was installed without it."""

    version: str
    commit: str

    def __str__(self) -> str:
        """Return both in one word, as Python's local versions have it."""
        return f"{self.version}+{self.commit[:12]}" if self.commit else self.version


def _find_commit() -> str:
    """Return the commit that an image was told when it was built, or that a clone has checked out."""
    if named := os.environ.get("PRIVATEER_REVISION"):
        return named
    with suppress(OSError, IndexError):
        git = _CLONE / ".git"
        if git.is_file():  # a worktree's names the folder
            git = Path(git.read_text().split(maxsplit=1)[1].strip())
        return (git / "logs" / "HEAD").read_text().splitlines()[-1].split()[1]
    return ""


BUILD: Final = Build(version("privateer-core"), _find_commit())

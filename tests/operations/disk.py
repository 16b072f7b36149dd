"""A disk of a service's own, which can fill up, hang, and fail as disks do: an ext4 file system in a file."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

_SIZE = 4 << 30
"""Much more than the 512 MiB at which an alert fires; the file has holes."""
_BLOCK = 4096
_MARGIN = 1 << 20


class Disk:
    """A file system at a folder.

    Attributes
    ----------
    folder
        Where it is mounted.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._image = folder, folder.with_name(f"{folder.name}.img")
        folder.mkdir(mode=0o700, parents=True)
        with self._image.open("wb") as image:
            image.truncate(_SIZE)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard", str(self._image))
        self.mount()
        folder.chmod(0o700)

    def mount(self) -> None:
        """Mount it; an error will make it read-only."""
        _run("mount", "-o", "loop,errors=remount-ro", str(self._image), str(self.folder))

    def unmount(self) -> None:
        """Unmount it; whoever has files open there keeps it busy."""
        _run("umount", str(self.folder))

    def fill(self) -> None:
        """Leave no byte free."""
        free = os.statvfs(self.folder)
        self._filling.touch(mode=0o600)
        with self._filling.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(free.f_bavail * free.f_frsize - _MARGIN, _BLOCK))
        with self._filling.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(_BLOCK))
        assert os.statvfs(self.folder).f_bavail == 0, "the disk is not full"

    def clear(self) -> None:
        """Make room again."""
        self._filling.unlink()

    def freeze(self) -> None:
        """Let every write wait."""
        _run("fsfreeze", "--freeze", str(self.folder))

    def thaw(self) -> None:
        """Let them go on."""
        _run("fsfreeze", "--unfreeze", str(self.folder))

    def fail(self) -> None:
        """Have the kernel meet an error there: it makes the file system read-only under whoever uses it."""
        subprocess.run(["mount", "-o", "remount,abort", str(self.folder)], check=False, capture_output=True)
        with suppress(OSError):
            self._filling.touch()
            raise AssertionError("the file system is not read-only")

    def repair(self) -> None:
        """Check and mount it again; nobody uses it."""
        self.unmount()
        checked = subprocess.run(["e2fsck", "-p", str(self._image)], check=False, capture_output=True)
        assert checked.returncode in (0, 1), checked.stdout
        self.mount()

    @property
    def _filling(self) -> Path:
        return self.folder / "somebody-else"


def can_mount() -> bool:
    """Whether this process may mount file systems."""
    return os.geteuid() == 0 and Path("/dev/loop-control").exists()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)

"""A site with the packed SDK installed, and its pages built with Vite: pages of the docs and of the tests."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_SDK: Final = ROOT / "sdk/js"
_PAGES: Final = Path(__file__).parent / "packed"
_DOCUMENTED: Final = ("offer.jsx", "server.jsx", "browser.jsx")
_PLAIN: Final = ("plain.html", "plain.js")
_OTHERS: Final = ("react", "react-dom", "scheduler", "vite")


def _run(*command: str, folder: Path) -> str:
    # Only React's build for developers mounts components twice, and says what it mends.
    settings = os.environ | {"NODE_ENV": "development", "NO_COLOR": "1"}
    process = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def install(folder: Path) -> None:
    """Install the file that ``npm pack`` makes of the SDK, as another machine would."""
    assert (_SDK / "node_modules").is_dir(), "the packages of the SDK's checks are missing: npm ci in sdk/js"
    _run("npm", "pack", "--pack-destination", str(folder), folder=_SDK)
    [packed] = folder.glob("*.tgz")
    (folder / "package.json").write_text('{"type": "module", "private": true}')
    _run("npm", "install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund", packed.name, folder=folder)
    for name in _OTHERS:
        (folder / "node_modules" / name).symlink_to(_SDK / "node_modules" / name)


def build(folder: Path, server: str) -> Path:
    """Build the pages for a server, and return the site's folder."""
    install(folder)
    blocks = re.findall(r"```jsx\n(.*?)```", (ROOT / "docs/web.md").read_text(), re.DOTALL)
    for name, text in zip(_DOCUMENTED, blocks, strict=True):
        (folder / name).write_text(text.replace("https://learn.example", server))
    shutil.copytree(_PAGES, folder, dirs_exist_ok=True)
    assert "warn" not in _run("node", "build.mjs", folder=folder)
    site = folder / "site"
    shutil.copytree(folder / "node_modules/@privateer/client/src", site / "privateer")
    for name in _PLAIN:
        shutil.copy(folder / name, site)
    return site


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The origin of a folder's pages."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()

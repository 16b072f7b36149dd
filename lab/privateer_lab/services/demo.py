"""The demos: an experiment from services to a picture of what it learned, and a page on which visitors are devices."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

from privateer_core.algorithms import read_spec
from privateer_core.errors import SpecError
from privateer_core.spec.spec import Spec
from privateer_lab.cli.ask import write_report
from privateer_lab.cli.output import open_folder, print_table, screen
from privateer_lab.load.driver import run_load
from privateer_lab.load.result import LoadResult
from privateer_lab.services.processes import Services, check_ports, free_port, running
from privateer_lab.services.rest import ask, create, policy_in, published_answer
from privateer_lab.terminal import print_conclusion, print_map

_WEB: Final = Path(__file__).parent / "web_demo"
_SDK: Final = Path(__file__).parents[3] / "sdk" / "js" / "src"
"""Where a clone has the SDK."""
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}


def demo_spec(users: int, **experiment: Any) -> Spec:
    """Return the spec of the demo for ``users`` people, with other keys of its ``experiment`` if given."""
    spec = read_spec((Path(__file__).parent / "demo.toml").read_text(encoding="utf-8"))
    return spec.model_copy(update={"experiment": spec.experiment.model_copy(update={"horizon": users, **experiment})})


def run_demo(services: Services, users: int, picture: Path) -> str:
    """Create the demo's experiment, have people take part over HTTP, and show what was learned; return its page."""
    spec, say = demo_spec(users), screen.print
    page = f"{services.server}/experiments/{spec.name}"
    say(f"[bold]1[/] services: server {services.server}, shuffler {services.shuffler}")
    say(f"  watch it in a browser: {services.server}/")
    create(services.admin, spec, services.token)
    privacy = f"{spec.privacy.model} privacy with epsilon {spec.privacy.bound:g}, delta {spec.privacy.delta:g}"
    say(f"[bold]2[/] experiment {spec.name}: {len(spec.options)} arms, {len(spec.features)} features, {privacy}")
    say(f"[bold]3[/] {users:,} people decide on their devices and send one sealed, randomized report each")
    where = (spec.name, services.server, services.shuffler)
    result = run_load(*where, users=users, seed=1, sender_key=services.sender_key, each=_Milestones(users).tell)
    say("\n[bold]4[/] the policy, which everybody may read; the best arm changes from left to right at .375 and .625")
    print_map(policy_in(ask("GET", f"{page}/policy")["policy"]), spec.options)
    print_conclusion(published_answer(services.server, spec.name))
    compared = {
        "learned policy": result.regret,
        "best constant arm": result.best_constant_regret,
        "arms at random": result.uniform_regret,
        "people": result.people,
        "people per second": result.people_per_second,
    }
    print_table("regret: the expected reward that people lost against the best arm for each of them", compared.items())
    open_folder(picture.parent, "--out")
    say("[bold]5[/] the same as a page with a picture, for a browser:")
    write_report(spec.name, services.server, picture)
    return page


class _Milestones:
    """Says at every tenth of the people how far learning is."""

    def __init__(self, users: int) -> None:
        self._users, self._tenths = users, 0

    def tell(self, so_far: LoadResult) -> None:
        """Print a line if another tenth is there."""
        tenth = 10 * so_far.people // self._users
        if tenth <= self._tenths:
            return
        self._tenths = tenth
        mean = so_far.regret / max(1, so_far.people)
        screen.print(
            f"  {so_far.people:7,} people, round {so_far.rounds}; reward lost so far: {mean:.3f} a person",
            highlight=False,
        )


def run_web_demo(port: int | None = None) -> None:
    """Serve the page until somebody interrupts it; ``port`` is the page's, by default a free one."""
    with tempfile.TemporaryDirectory(prefix="privateer-") as folder, web_demo(Path(folder), port) as (page, services):
        screen.print(f"open [bold]{page}[/] in a browser: every visitor is a device, and nothing leaves this machine")
        screen.print(f"the server's own page is {services.server}/ ; interrupt with Ctrl-C")
        services.processes.watch()


@contextmanager
def web_demo(folder: Path, port: int | None = None) -> Iterator[tuple[str, Services]]:
    """Start the services on data in a folder, create the experiment, and serve the page; yield its address and them."""
    sdk, port = sdk_folder(), port or free_port()
    check_ports({"--port": port})
    page = f"http://127.0.0.1:{port}"
    spec = read_spec((_WEB / "places.toml").read_text(encoding="utf-8"))
    with running(folder, free_port(), free_port(), quiet=True, origins=page) as services:
        create(services.admin, spec, services.token)
        with serving(DemoPage(sdk, services.server, services.shuffler, spec.name), port):
            yield f"{page}/", services


@dataclass(frozen=True)
class DemoPage:
    """The page of the demo, and what it needs to know."""

    sdk: Path  # folder of the SDK
    # server, shuffler: addresses of the services
    server: str
    shuffler: str
    experiment: str  # its name

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every answer: nothing from other hosts, no script but the files, and no text taken for HTML."""
        policy = (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
            f"connect-src 'self' {self.server} {self.shuffler}; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
        )
        return {
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-cache",
        }

    def files(self) -> dict[str, tuple[str, bytes]]:
        """Return the type and the content of each path."""
        page = {"server": self.server, "shuffler": self.shuffler, "experiment": self.experiment}
        found = {"/demo.json": (_TYPES[".json"], json.dumps(page).encode())}
        for start, folder in (("", _WEB / "page"), ("/sdk", self.sdk)):
            for path in folder.rglob("*"):
                if path.suffix in _TYPES:
                    found[f"{start}/{path.relative_to(folder).as_posix()}"] = (_TYPES[path.suffix], path.read_bytes())
        return found | {"/": found["/index.html"]}


def sdk_folder() -> Path:
    """Return the folder of the SDK's modules."""
    if not (_SDK / "index.js").is_file():
        remedy = "clone the repository, and run make demo there once"
        raise SpecError("the SDK for JavaScript is in sdk/js of the repository, not here", field="--web", remedy=remedy)
    return _SDK


@contextmanager
def serving(page: DemoPage, port: int) -> Iterator[None]:
    """Answer browsers at a port of the loopback interface."""
    files, headers = page.files(), page.headers

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            """Answer with a file."""
            kind, body = files.get(self.path, ("text/plain; charset=utf-8", b"no such page"))
            self.send_response(HTTPStatus.OK if self.path in files else HTTPStatus.NOT_FOUND)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Write no log: it would say who visits when."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()

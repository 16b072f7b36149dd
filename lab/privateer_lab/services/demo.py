"""The demos: an experiment with simulated participants over HTTP, and a page whose visitors are participants."""

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
from privateer_lab.load.driver import LoadResult, run_load
from privateer_lab.render.documents import write_conclusion
from privateer_lab.render.terminal import print_document, print_map
from privateer_lab.services.processes import Services, check_ports, free_port, run_services
from privateer_lab.services.rest import create_experiment, fetch_answer, parse_policy, request_json

_WEB_FOLDER: Final = Path(__file__).parent / "web_demo"
_SDK_FOLDER: Final = Path(__file__).parents[3] / "sdk" / "js" / "src"
"""The folder of the SDK in a clone of the repository."""
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}


def demo_spec(users: int, **experiment: Any) -> Spec:
    """Return the spec of the demo for ``users`` participants, with other keys of its ``experiment`` if given."""
    spec = read_spec((Path(__file__).parent / "demo.toml").read_text(encoding="utf-8"))
    return spec.model_copy(update={"experiment": spec.experiment.model_copy(update={"horizon": users, **experiment})})


def run_demo(services: Services, users: int, picture: Path) -> str:
    """Create the demo's experiment, simulate participants over HTTP, and print the result; return its URL."""
    spec, say = demo_spec(users), screen.print
    experiment_url = f"{services.server}/experiments/{spec.name}"
    say(f"[bold]1[/] services: server {services.server}, shuffler {services.shuffler}")
    say(f"  watch it in a browser: {services.server}/")
    create_experiment(services.admin, spec, services.token)
    privacy = f"{spec.privacy.model} privacy with epsilon {spec.privacy.bound:g}, delta {spec.privacy.delta:g}"
    say(f"[bold]2[/] experiment {spec.name}: {len(spec.options)} arms, {len(spec.features)} features, {privacy}")
    say(f"[bold]3[/] {users:,} people decide on their devices and send one sealed, randomized report each")
    addresses, print_milestone = (spec.name, services.server, services.shuffler), _Milestones(users).report
    result = run_load(*addresses, users=users, seed=1, sender_key=services.sender_key, on_progress=print_milestone)
    say("\n[bold]4[/] the policy, which everybody may read; the best arm changes from left to right at .375 and .625")
    print_map(parse_policy(request_json("GET", f"{experiment_url}/policy")["policy"]), spec.options)
    print_document(write_conclusion(fetch_answer(services.server, spec.name)))
    rows = {
        "learned policy": result.regret,
        "best constant arm": result.best_constant_regret,
        "arms at random": result.uniform_regret,
        "people": result.people,
        "people per second": result.people_per_second,
    }
    print_table("regret: the expected reward that people lost against the best arm for each of them", rows.items())
    open_folder(picture.parent, "--out")
    say("[bold]5[/] the same as a page with a picture, for a browser:")
    write_report(spec.name, services.server, picture)
    return experiment_url


class _Milestones:
    """A printer of progress at every tenth of the participants."""

    def __init__(self, users: int) -> None:
        self._users, self._tenths = users, 0

    def report(self, so_far: LoadResult) -> None:
        """Print a line if another tenth of the participants is complete."""
        tenth = 10 * so_far.people // self._users
        if tenth <= self._tenths:
            return
        self._tenths = tenth
        regret_note = f"reward lost so far: {so_far.regret / max(1, so_far.people):.3f} a person"
        screen.print(f"  {so_far.people:7,} people, round {so_far.rounds}; {regret_note}", highlight=False)


def run_web_demo(port: int | None = None) -> None:
    """Serve the demo page until it is interrupted, on ``port`` or a free port."""
    temporary = tempfile.TemporaryDirectory(prefix="privateer-")
    with temporary as folder, serve_web_demo(Path(folder), port) as (page, services):
        screen.print(f"open [bold]{page}[/] in a browser: every visitor is a device, and nothing leaves this machine")
        screen.print(f"the server's own page is {services.server}/ ; interrupt with Ctrl-C")
        services.processes.watch()


@contextmanager
def serve_web_demo(folder: Path, port: int | None = None) -> Iterator[tuple[str, Services]]:
    """Start the services, create the experiment, and serve the page; yield the page's URL and the services."""
    sdk, port = find_sdk_folder(), port or free_port()
    check_ports({"--port": port})
    origin = f"http://127.0.0.1:{port}"
    spec = read_spec((_WEB_FOLDER / "places.toml").read_text(encoding="utf-8"))
    with run_services(folder, free_port(), free_port(), quiet=True, origins=origin) as services:
        create_experiment(services.admin, spec, services.token)
        with serve_page(DemoPage(sdk, services.server, services.shuffler, spec.name), port):
            yield f"{origin}/", services


@dataclass(frozen=True)
class DemoPage:
    """The page of the demo with the addresses of its services."""

    sdk: Path  # folder of the SDK
    # server, shuffler: addresses of the services
    server: str
    shuffler: str
    experiment: str  # its name

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every response: no content of other hosts, no inline scripts, no text parsed as HTML."""
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
        """Return the media type and the content of each path."""
        settings = {"server": self.server, "shuffler": self.shuffler, "experiment": self.experiment}
        contents = {"/demo.json": (_TYPES[".json"], json.dumps(settings).encode())}
        for prefix, folder in (("", _WEB_FOLDER / "page"), ("/sdk", self.sdk)):
            for path in folder.rglob("*"):
                if path.suffix in _TYPES:
                    page = f"{prefix}/{path.relative_to(folder).as_posix()}"
                    contents[page] = (_TYPES[path.suffix], path.read_bytes())
        return contents | {"/": contents["/index.html"]}


def find_sdk_folder() -> Path:
    """Return the folder of the SDK's modules in a clone of the repository; refuse to run elsewhere."""
    if not (_SDK_FOLDER / "index.js").is_file():
        remedy = "clone the repository, and run make demo there once"
        raise SpecError("the SDK for JavaScript is in sdk/js of the repository, not here", field="--web", remedy=remedy)
    return _SDK_FOLDER


@contextmanager
def serve_page(page: DemoPage, port: int) -> Iterator[None]:
    """Serve the demo page at a port of the loopback interface."""
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
            """Write no log, since it would have the times of visits."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()

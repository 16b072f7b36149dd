"""The proxy's file records nothing about participants, and its timeouts are no longer than the services'."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from privateer_core.serving.http_protocol import HEADER_BYTES_MAX
from privateer_server.api.experiment_routes import _MAX_WAIT_SECONDS
from privateer_server.settings import ServerSettings
from privateer_shuffler.settings import ShufflerSettings
from privateer_shuffler.upstream import _LEARN_SECONDS

ROOT = Path(__file__).parents[2]
FILE = (ROOT / "deploy" / "proxy" / "nginx.conf").read_text()
TOKEN = re.compile(r"#[^\n]*|[{};]|\"[^\"]*\"|[^\s{};#]+(?:\{[^}\s]*\}[^\s{};]*)*")
FORWARDED = {"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "Forwarded", "Via"}
IDLE_SECONDS = 5


class Directive(NamedTuple):
    """A directive, with its block."""

    name: str
    words: tuple[str, ...]
    inside: tuple["Directive", ...] = ()

    def all(self, name: str) -> list["Directive"]:
        """Return the directives of a name, however deep."""
        direct = [directive for directive in self.inside if directive.name == name]
        return direct + [deep for directive in self.inside for deep in directive.all(name)]

    def args(self, name: str) -> list[tuple[str, ...]]:
        """Return the arguments of a name's directives in this block."""
        return [directive.words for directive in self.inside if directive.name == name]


def parse(text: str) -> Directive:
    tokens = iter([token for token in TOKEN.findall(text) if not token.startswith("#")])
    return Directive("", (), tuple(_block(tokens, is_outer=True)))


def _block(tokens: Iterator[str], *, is_outer: bool = False) -> Iterator[Directive]:
    words = list[str]()
    for token in tokens:
        if token == "}":
            assert not words
            assert not is_outer
            return
        if token == ";":
            yield Directive(words[0], tuple(words[1:]))
            words = []
        elif token == "{":
            yield Directive(words[0], tuple(words[1:]), tuple(_block(tokens)))
            words = []
        else:
            words.append(token.strip('"'))
    assert is_outer
    assert not words


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


def mebibytes(text: str) -> int:
    return int(text.removesuffix("m")) << 20


def private(http: Directive) -> list[Directive]:
    """Server blocks whose pages strangers must not reach."""
    to_private = lambda block: any(directive.words == ("http://private",) for directive in block.all("proxy_pass"))  # noqa: E731
    return [directive for directive in http.inside if directive.name == "server" and to_private(directive)]


def faults(text: str) -> list[str]:
    """What the file does that a proxy in front of Privateer must not do."""
    whole = parse(text)
    (http,) = [node for node in whole.inside if node.name == "http"]
    servers = [node for node in http.inside if node.name == "server"]
    set_headers = {words[0]: words[1] for words in http.args("proxy_set_header")}
    first = {node.name: node.words[0] for node in http.inside if node.words}
    max_body = max(ServerSettings(data=Path(), admin_token="t" * 16).report_bytes_max, ShufflerSettings().body_limit)
    checks = {
        "a log of requests": [node.words for node in whole.all("access_log")] == [("off",)],
        "a log of errors, which names addresses": [node.words for node in whole.all("error_log")]
        == [("stderr", "emerg")],
        "an address goes on": all(set_headers.get(name) == "" for name in FORWARDED),
        "headers of its own hide those above": len(whole.all("proxy_set_header")) == len(set_headers),
        "a connection for each request": (set_headers.get("Connection"), first["proxy_http_version"]) == ("", "1.1"),
        "slow senders reach the service": first["proxy_request_buffering"] == "on",
        "bodies on disk": first["client_body_temp_path"].startswith("/dev/shm/"),
        "answers on disk": first["proxy_max_temp_file_size"] == "0" and first["proxy_cache"] == "off",
        "small bodies only": mebibytes(first["client_max_body_size"]) >= max_body,
        "long headers": seconds(first["client_header_timeout"]) <= 10,
        "long headers refused": int(http.args("large_client_header_buffers")[0][1].removesuffix("k")) << 10
        >= HEADER_BYTES_MAX,
        "long polls break off": seconds(first["proxy_read_timeout"]) > _MAX_WAIT_SECONDS,
        "an upload sent twice": first["proxy_next_upstream"] == "off",
        "sessions that tie requests": (first["ssl_session_cache"], first["ssl_session_tickets"]) == ("off", "off"),
        "old TLS": http.args("ssl_protocols") == [("TLSv1.2", "TLSv1.3")],
        "no limits for a sender": bool(http.args("limit_conn")) and bool(http.args("limit_req")),
        "requests without TLS": all(node.args("listen") == [("443", "ssl")] for node in servers),
        "connections that the service has closed": all(
            seconds(d.args("keepalive_timeout")[0][0]) < IDLE_SECONDS for d in http.inside if d.name == "upstream"
        ),
        "operators' pages for everybody": all(
            node.args("deny") == [("all",)] and all(words != ("all",) for words in node.args("allow"))
            for node in private(http)
        ),
        "operators' pages for the shuffler": all(
            ("http://private",) not in node.args("proxy_pass")
            for block in private(http)
            for node in block.inside
            if node.words == ("/",)
        ),
        "batches break off": all(
            seconds(node.args("proxy_read_timeout")[0][0]) > _LEARN_SECONDS for node in private(http)
        ),
        "small batches only": all(
            mebibytes(node.args("client_max_body_size")[0][0]) >= 256 << 20 for node in private(http)
        ),
    }
    return [fault for fault, is_well in checks.items() if not is_well]


def test_the_proxy_configuration_has_no_faults() -> None:
    assert faults(FILE) == []


@pytest.mark.parametrize(
    ("line", "other", "fault"),
    [
        ("access_log off;", "access_log /var/log/nginx/access.log;", "a log of requests"),
        ("server_name shuffle.example;", "server_name a; access_log /tmp/x;", "a log of requests"),
        ("stderr emerg", "stderr warn", "a log of errors, which names addresses"),
        ('X-Forwarded-For ""', "X-Forwarded-For $proxy_add_x_forwarded_for", "an address goes on"),
        ("proxy_pass http://shuffler;", "proxy_set_header A b; proxy_pass http://shuffler;", "headers of its own hide"),
        ("proxy_request_buffering on;", "proxy_request_buffering off;", "slow senders reach the service"),
        ("/dev/shm/privateer-proxy", "/var/lib/nginx/body", "bodies on disk"),
        ("client_max_body_size 8m;", "client_max_body_size 1m;", "small bodies only"),
        ("proxy_read_timeout 75s;", "proxy_read_timeout 60s;", "long polls break off"),
        ("ssl_session_tickets off;", "ssl_session_tickets on;", "sessions that tie requests"),
        ("keepalive_timeout 4s;", "keepalive_timeout 60s;", "connections that the service has closed"),
        ("deny all;\n\n", "", "operators' pages for everybody"),
        ("return 404;", "proxy_pass http://private;", "operators' pages for the shuffler"),
        (
            "listen 443 ssl;\n        server_name issuer",
            "listen 80;\n        server_name issuer",
            "requests without TLS",
        ),
    ],
)
def test_a_planted_fault_of_the_proxys_file_is_found(line: str, other: str, fault: str) -> None:
    assert line in FILE
    assert any(fault_.startswith(fault) for fault_ in faults(FILE.replace(line, other, 1)))


def test_nginx_takes_the_file(tmp_path: Path) -> None:
    """Where there is no nginx, the parser above has read it: braces and semicolons are in their places."""
    nginx = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    assert len(parse(FILE).all("server")) == 4 + 4  # blocks, and those of the upstreams
    if nginx is None:
        return
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    options = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=proxy.test"]
    subprocess.run(["openssl", *options, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    text = re.sub(r"/etc/privateer/\S+\.pem", str(certificate), FILE)
    text = re.sub(r"/etc/privateer/\S+\.key", str(key), text).replace("/run/", f"{tmp_path}/")
    (tmp_path / "nginx.conf").write_text(text)
    process = subprocess.run([nginx, "-t", "-c", tmp_path / "nginx.conf"], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr

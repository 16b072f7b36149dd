"""The proxy's file keeps nothing about people, and holds nobody longer than the services do."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from privateer_core.serving.http_protocol import HEADER_BYTES_MAX
from privateer_server.api.events import BEAT_SECONDS
from privateer_server.api.experiment_routes import _WAIT_MAX
from privateer_server.settings import ServerSettings
from privateer_shuffler.delivery import _LEARN_SECONDS
from privateer_shuffler.settings import ShufflerSettings

ROOT = Path(__file__).parents[2]
FILE = (ROOT / "deploy" / "proxy" / "nginx.conf").read_text()
TOKEN = re.compile(r"#[^\n]*|[{};]|\"[^\"]*\"|[^\s{};#]+(?:\{[^}\s]*\}[^\s{};]*)*")
FORWARDED = {"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "Forwarded", "Via"}
IDLE_SECONDS = 5


class Directive(NamedTuple):
    """One directive, with what is in its block."""

    name: str
    words: tuple[str, ...]
    inside: tuple["Directive", ...] = ()

    def all(self, name: str) -> list["Directive"]:
        """Those of a name, however deep."""
        found = [one for one in self.inside if one.name == name]
        return found + [deep for one in self.inside for deep in one.all(name)]

    def own(self, name: str) -> list[tuple[str, ...]]:
        """The words of those that stand here."""
        return [one.words for one in self.inside if one.name == name]


def parse(text: str) -> Directive:
    tokens = iter([one for one in TOKEN.findall(text) if not one.startswith("#")])
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
    to_private = lambda block: any(one.words == ("http://private",) for one in block.all("proxy_pass"))  # noqa: E731
    return [one for one in http.inside if one.name == "server" and to_private(one)]


def faults(text: str) -> list[str]:
    """What the file does that a proxy in front of Privateer must not do."""
    whole = parse(text)
    (http,) = [one for one in whole.inside if one.name == "http"]
    servers = [one for one in http.inside if one.name == "server"]
    sent = {words[0]: words[1] for words in http.own("proxy_set_header")}
    first = {one.name: one.words[0] for one in http.inside if one.words}
    most = max(
        ServerSettings(data=Path(), admin_token="t" * 16).report_bytes_max,
        ShufflerSettings().body_limit,
    )
    checks = {
        "a log of requests": [one.words for one in whole.all("access_log")] == [("off",)],
        "a log of errors, which names addresses": [one.words for one in whole.all("error_log")]
        == [("stderr", "emerg")],
        "an address goes on": all(sent.get(name) == "" for name in FORWARDED),
        "headers of its own hide those above": len(whole.all("proxy_set_header")) == len(sent),
        "a connection for each request": (sent.get("Connection"), first["proxy_http_version"]) == ("", "1.1"),
        "slow senders reach the service": first["proxy_request_buffering"] == "on",
        "bodies on disk": first["client_body_temp_path"].startswith("/dev/shm/"),
        "answers on disk": first["proxy_max_temp_file_size"] == "0" and first["proxy_cache"] == "off",
        "small bodies only": mebibytes(first["client_max_body_size"]) >= most,
        "long headers": seconds(first["client_header_timeout"]) <= 10,
        "long headers refused": int(http.own("large_client_header_buffers")[0][1].removesuffix("k")) << 10
        >= HEADER_BYTES_MAX,
        "long polls break off": seconds(first["proxy_read_timeout"]) > max(_WAIT_MAX, BEAT_SECONDS),
        "an upload sent twice": first["proxy_next_upstream"] == "off",
        "sessions that tie requests": (first["ssl_session_cache"], first["ssl_session_tickets"]) == ("off", "off"),
        "old TLS": http.own("ssl_protocols") == [("TLSv1.2", "TLSv1.3")],
        "no limits for a sender": bool(http.own("limit_conn")) and bool(http.own("limit_req")),
        "requests without TLS": all(one.own("listen") == [("443", "ssl")] for one in servers),
        "connections that the service has closed": all(
            seconds(one.own("keepalive_timeout")[0][0]) < IDLE_SECONDS for one in http.inside if one.name == "upstream"
        ),
        "a stream is held back": any(
            ("off",) in one.own("proxy_buffering") for one in servers[0].inside if one.words[:1] == ("~",)
        ),
        "operators' pages for everybody": all(
            one.own("deny") == [("all",)] and all(words != ("all",) for words in one.own("allow"))
            for one in private(http)
        ),
        "operators' pages for the shuffler": all(
            ("http://private",) not in one.own("proxy_pass")
            for block in private(http)
            for one in block.inside
            if one.words == ("/",)
        ),
        "batches break off": all(
            seconds(one.own("proxy_read_timeout")[0][0]) > _LEARN_SECONDS for one in private(http)
        ),
        "small batches only": all(
            mebibytes(one.own("client_max_body_size")[0][0]) >= 256 << 20 for one in private(http)
        ),
    }
    return [fault for fault, is_well in checks.items() if not is_well]


def test_the_file_keeps_what_the_page_says() -> None:
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
        ("proxy_buffering off;", "", "a stream is held back"),
        ("deny all;\n\n", "", "operators' pages for everybody"),
        ("return 404;", "proxy_pass http://private;", "operators' pages for the shuffler"),
        (
            "listen 443 ssl;\n        server_name issuer",
            "listen 80;\n        server_name issuer",
            "requests without TLS",
        ),
    ],
)
def test_a_file_that_does_not_is_found(line: str, other: str, fault: str) -> None:
    assert line in FILE
    assert any(found.startswith(fault) for found in faults(FILE.replace(line, other, 1)))


def test_nginx_takes_the_file(tmp_path: Path) -> None:
    """Where there is no nginx, the parser above has read it: braces and semicolons are in their places."""
    nginx = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    assert len(parse(FILE).all("server")) == 4 + 4  # blocks, and those of the upstreams
    if nginx is None:
        return
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=proxy.test"]
    subprocess.run(["openssl", *made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    text = re.sub(r"/etc/privateer/\S+\.pem", str(certificate), FILE)
    text = re.sub(r"/etc/privateer/\S+\.key", str(key), text).replace("/run/", f"{tmp_path}/")
    (tmp_path / "nginx.conf").write_text(text)
    done = subprocess.run([nginx, "-t", "-c", tmp_path / "nginx.conf"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

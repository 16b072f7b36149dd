"""The dashboard is served to browsers, from this server alone, and programs notice nothing of it."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from hatchling.builders.wheel import WheelBuilder

from privateer_core.errors import BatchRefused
from privateer_core.serving.http.openapi import UPLOAD_REFUSALS
from privateer_server.api.pages import DASHBOARD_FOLDER
from privateer_server.app import create_app
from privateer_server.experiments.changes import Verb
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.servers import ADMIN, SMALL, Api, assert_problem

BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"}
FILES = sorted(
    path for path in DASHBOARD_FOLDER.rglob("*") if path.suffix in {".html", ".css", ".mjs", ".svg", ".toml"}
)
NAMES = [path.name for path in FILES if path.name != "index.html" and path.parent == DASHBOARD_FOLDER]
OPERATORS = ["operator/changes.json", *(f"operator/{path.name}" for path in FILES if path.parent != DASHBOARD_FOLDER)]
TYPES = {".css": "text/css; charset=utf-8", ".mjs": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
FIRST_LOAD_MAX = 300_000
ELSEWHERE = re.compile(r"""(?:https?:)?//[\w-]+\.|@import|url\(\s*['"]?(?!#)|\bdata:(?!\s)""")
"""Addresses of other hosts, and what could load something."""
NAMESPACE = "http://www.w3.org/2000/svg"
HTML_FROM_TEXT = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|setHTML|DOMParser"
)


@pytest.fixture
async def stranger(settings: ServerSettings) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(settings)
    async with (
        serving(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app.public), base_url="http://server") as client,
    ):
        yield client


async def test_a_browser_gets_the_page(stranger: httpx.AsyncClient) -> None:
    answer = await stranger.get("/", headers=BROWSER)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["vary"] == "Accept"
    assert answer.text.startswith("<!doctype html>")


@pytest.mark.parametrize("name", NAMES)
async def test_every_file_has_its_type_and_a_tag(stranger: httpx.AsyncClient, name: str) -> None:
    answer = await stranger.get(f"/dashboard/{name}")
    assert answer.status_code == 200
    assert answer.content == (DASHBOARD_FOLDER / name).read_bytes()
    assert answer.headers["content-type"] == TYPES[Path(name).suffix]
    assert answer.headers["cache-control"] == "no-cache"
    unchanged = await stranger.get(f"/dashboard/{name}", headers={"if-none-match": answer.headers["etag"]})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert unchanged.headers["etag"] == answer.headers["etag"]
    other = await stranger.get(f"/dashboard/{name}", headers={"if-none-match": '"another"'})
    assert other.status_code == 200


@pytest.mark.parametrize("path", ["/", "/dashboard/app.mjs", "/dashboard/style.css"])
async def test_the_content_policy_allows_own_files_alone(stranger: httpx.AsyncClient, path: str) -> None:
    headers = (await stranger.get(path, headers=BROWSER)).headers
    allowed = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
    assert allowed.pop("default-src") == allowed.pop("base-uri") == allowed.pop("frame-ancestors") == "'none'"
    assert allowed.pop("form-action") == allowed.pop("trusted-types") == "'none'"
    assert allowed.pop("require-trusted-types-for") == "'script'"
    assert set(allowed) == {"script-src", "style-src", "img-src", "connect-src"}
    assert set(allowed.values()) == {"'self'"}
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("accept", ["application/json", "*/*", "application/msgpack", "application/problem+json", ""])
async def test_programs_get_no_page_at_the_root(stranger: httpx.AsyncClient, accept: str) -> None:
    assert_problem(await stranger.get("/", headers={"accept": accept}), 404, "not-found")


@pytest.mark.parametrize(
    "path",
    [
        "/dashboard",
        "/dashboard/",
        "/dashboard/index.html",
        "/dashboard/nothing.mjs",
        "/dashboard/../app.py",
        "/dashboard/%2e%2e/app.py",
    ],
)
async def test_unknown_dashboard_files_are_not_found(stranger: httpx.AsyncClient, path: str) -> None:
    assert_problem(await stranger.get(path, headers=BROWSER), 404, "not-found")


@pytest.mark.parametrize("path", ["/", "/dashboard/app.mjs"])
async def test_dashboard_pages_refuse_other_methods(stranger: httpx.AsyncClient, path: str) -> None:
    whole = await stranger.get(path, headers=BROWSER)
    head = await stranger.head(path, headers=BROWSER)
    assert (head.status_code, head.headers["etag"]) == (200, whole.headers["etag"])
    for method in ("POST", "PUT", "DELETE"):
        assert_problem(await stranger.request(method, path, headers=BROWSER | ADMIN), 404, "not-found")


async def test_the_private_listener_says_which_methods_a_page_takes(settings: ServerSettings) -> None:
    async with serving(create_app(settings)) as operator:
        refused = await operator.post("/dashboard/app.mjs", headers=ADMIN)
        assert_problem(refused, 405, "method-not-allowed")
        assert refused.headers["allow"] == "GET, HEAD"


def test_files_name_no_other_host_and_make_no_html() -> None:
    for path in FILES:
        text = path.read_text().replace(NAMESPACE, "")
        assert not ELSEWHERE.search(text), path.name
        assert not HTML_FROM_TEXT.search(text), path.name
    page = (DASHBOARD_FOLDER / "index.html").read_text()
    assert "style=" not in page
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=", page)


@pytest.mark.parametrize(
    "planted",
    [
        '<script src="https://cdn.example.com/x.js">',
        'import "//cdn.example.com/x.mjs"',
        "background: url(x.png)",
        '@import "y"',
    ],
)
def test_a_planted_address_of_another_host_is_found(planted: str) -> None:
    assert ELSEWHERE.search(planted)


def test_the_first_load_is_small() -> None:
    assert sum(len(path.read_bytes()) for path in FILES) <= FIRST_LOAD_MAX


def test_every_file_of_the_folder_is_served() -> None:
    assert {path for path in DASHBOARD_FOLDER.rglob("*") if path.is_file()} == set(FILES)


def test_the_distribution_has_every_file() -> None:
    shipped = {
        file.distribution_path for file in WheelBuilder(str(DASHBOARD_FOLDER.parents[1])).recurse_included_files()
    }
    assert {f"privateer_server/dashboard/{path.relative_to(DASHBOARD_FOLDER)}" for path in FILES} <= shipped


def test_modules_import_files_that_are_there() -> None:
    quoted = re.compile(r"""(?:from|import\()\s*"(\.\.?/[\w./]+)\"""")
    imported = {(path.parent / name).resolve() for path in FILES for name in quoted.findall(path.read_text())}
    assert imported <= set(FILES)
    assert len(imported) > 20


def test_public_modules_import_nothing_for_operators_but_where_there_is_a_private_listener() -> None:
    naming = [path.name for path in FILES if path.parent == DASHBOARD_FOLDER and "./operator/" in path.read_text()]
    assert naming == ["operator.mjs"]
    assert 'dataset.listener === "private" ? await import(' in (DASHBOARD_FOLDER / "operator.mjs").read_text()


async def test_every_form_describes_the_effect_of_its_change(api: Api) -> None:
    forms = (await api.client.get("/dashboard/operator/changes.json")).json()
    assert [form["id"] for form in forms] == list(get_args(Verb))
    assert [form["id"] for form in forms if form["is_final"]] == ["stop", "retire-arm", "delete"]
    for form in forms:
        assert all(re.fullmatch(r"[A-Z].+\.", form[about]) for about in ("flight", "learned", "promise")), form["id"]
        assert all(field["label"] for field in form["fields"])
    assert [field["type"] for form in forms for field in form["fields"] if field["name"] == "arm"] == ["arm", "text"]
    limits = {field["name"]: (field["whole"], field["least"]) for form in forms for field in form["fields"]}
    assert (limits["seconds"], limits["horizon"], limits["arm"]) == ((False, 0), (True, 1), (False, None))


@pytest.mark.parametrize("name", OPERATORS)
async def test_only_the_private_listener_serves_forms(stranger, settings, name):
    for headers in ({}, BROWSER, ADMIN):
        assert_problem(await stranger.get(f"/dashboard/{name}", headers=headers), 404, "not-found")


async def test_the_page_names_its_listener(settings: ServerSettings) -> None:
    app = create_app(settings)
    async with serving(app) as operator:
        private = await operator.get("/", headers=BROWSER)
        for name in OPERATORS:
            answer = await operator.get(f"/dashboard/{name}")
            page = (DASHBOARD_FOLDER / name).read_bytes() if (DASHBOARD_FOLDER / name).exists() else answer.content
            assert (answer.status_code, answer.content) == (200, page)
            assert answer.headers["content-security-policy"] == private.headers["content-security-policy"]
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app.public), base_url="http://server") as stranger:
            public = await stranger.get("/", headers=BROWSER)
    assert '<body data-listener="private">' in private.text
    assert public.text == (DASHBOARD_FOLDER / "index.html").read_text()
    assert public.headers["etag"] != private.headers["etag"]
    assert "listener" not in public.text


def test_the_dashboard_keeps_the_token_in_memory_alone() -> None:
    """No storage, no cookie and no address has it, and one module alone sends it."""
    text = {path.name: path.read_text() for path in FILES if path.parent != DASHBOARD_FOLDER and path.suffix == ".mjs"}
    for name, module in text.items():
        assert not re.search(
            r"localStorage|sessionStorage|indexedDB|cookie\b(?!,)|history\.|caches\.", _code(module)
        ), name
        assert ("authorization" in module) == (name == "token.mjs")


def _code(text: str) -> str:
    """Without comments."""
    return re.sub(r"^\s*//.*$|/\*\*.*?\*/", "", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", ["/experiments", "/experiments/test", "/experiments/none", "/healthz", "/keys"])
async def test_head_has_the_headers_of_get(settings: ServerSettings, path: str) -> None:
    app = create_app(settings)
    async with serving(app) as operator:
        await Api(operator).create(SMALL)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app.public), base_url="http://server") as stranger:
            head = await stranger.head(path)
            app.end_waits()
            whole = await stranger.get(path)
    assert (head.status_code, head.content) == (whole.status_code, b"")
    assert head.headers["content-type"] == whole.headers["content-type"]
    if "content-length" in head.headers:
        assert int(head.headers["content-length"]) == len(whole.content)


def test_every_refusal_reason_has_a_description() -> None:
    reasons = re.findall(r'^  "?([\w-]+)"?: "', (DASHBOARD_FOLDER / "reasons.mjs").read_text(), re.MULTILINE)
    refusals: tuple[Any, ...] = (*UPLOAD_REFUSALS, BatchRefused)
    assert set(reasons) == {error.slug for error in refusals}


async def test_a_summary_has_the_planned_number_of_reports(settings: ServerSettings) -> None:
    async with serving(create_app(settings)) as operator:
        assert (await Api(operator).create(SMALL)).status_code == 201
        listed = (await operator.get("/experiments")).json()["experiments"]
        assert [summary["people"]["planned"] for summary in listed] == [SMALL["experiment.horizon"]]


async def test_the_risk_is_public(settings: ServerSettings) -> None:
    app = create_app(settings)
    async with serving(app) as operator:
        await Api(operator).create(SMALL)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app.public), base_url="http://server") as stranger:
            answer = await stranger.get("/experiments/test/risk")
            assert answer.status_code == 200
            claims = (await stranger.get("/experiments/test/privacy")).json()["certificate"]["claims"]
            risks = json.loads(answer.content)["risks"]
            assert [risk["adversary"] for risk in risks] == [claim["adversary"] for claim in claims]
            assert all(0 < risk["advantage"] < 1 for risk in risks)
            assert_problem(await stranger.get("/experiments/none/risk"), 404, "not-found")

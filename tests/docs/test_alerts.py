"""Alerts and dashboard name metrics, labels and values that the services export, and every alert has its section."""

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from privateer_core.serving.store.sqlite import SPARE_BYTES
from privateer_core.wire.token import Challenge, PendingToken
from privateer_core.wire.token_keys import Directory
from privateer_issuer.app import create_app as create_issuer
from privateer_lab.doctor.server import BACKUP_SECONDS
from tests.support.asgi import serving
from tests.support.sealing import body_of, sealed_reports
from tests.support.server_and_shuffler import pair
from tests.support.servers import SHUFFLED, SMALL
from tests.support.tokens import issuer_settings

ROOT = Path(__file__).parents[2]
OPERATIONS = ROOT / "docs" / "operations"
RULES = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "privateer.json").read_text())
FUNCTIONS = {"sum", "by", "rate", "increase", "delta", "changes", "time", "histogram_quantile", "predict_linear"}
FUNCTIONS |= {"abs", "timestamp"}
WORDS = FUNCTIONS | {"or", "and"}
OF_PROMETHEUS = {"up": {"job", "instance"}}
"""What it makes itself for every target."""
STANDARD = {"job", "instance"}
FIXED = ("route", "stage", "of", "status")
"""Labels whose values the services choose, so that a rule may name them."""
LATER = {("privateer_http_request_duration_seconds_count", "status"): {"5xx"}}
"""Values that this test does not bring about."""


class Exported(NamedTuple):
    """What the services export: labels of every sample's name, and values seen of labels."""

    labels: dict[str, set[str]]
    values: dict[tuple[str, str], set[str]]
    families: set[str]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """After a local round and a shuffled one."""
    series = Exported(defaultdict(set), defaultdict(set), set())
    pages = asyncio.run(_pages(tmp_path_factory.mktemp("pair")))
    for family in text_string_to_metric_families(pages):
        series.families.add(family.name)
        for sample in family.samples:
            series.labels[sample.name] |= set(sample.labels)
            for label, value in sample.labels.items():
                series.values[sample.name, label].add(value)
    return series


async def _pages(folder: Path) -> str:
    async with pair(folder) as services, asyncio.timeout(60):
        await services.api.create(SMALL)
        await services.api.create(SHUFFLED | {"experiment.name": "shuffled"})
        local = await services.api.publication()
        for report in [*sealed_reports(local, 20), bytes(70)]:
            await services.api.client.post("/reports", content=body_of(local, [report]))
        body = await services.api.publication("shuffled")
        (whole,) = sealed_reports(body, 1)
        for report in [bytes(len(whole)), *sealed_reports(body, 99), *[b"short"] * 10]:
            await services.upload(body, report)
        while "forwarded_total 100.0" not in (shuffler := (await services.shuffler.get("/metrics")).text):
            await asyncio.sleep(0.02)
        return (await services.api.client.get("/metrics")).text + shuffler + await _issuers_page(folder)


async def _issuers_page(folder: Path) -> str:
    """After a request that was refused, and one that was not."""
    async with serving(create_issuer(issuer_settings(folder))) as client:
        key = Directory.decode((await client.get("/token-keys")).content).keys("test")[0]
        for request in (b"", PendingToken.draw(Challenge("issuer", "shuffler", "test"), key).request):
            await client.post("/experiments/test/tokens", content=request)
        return (await client.get("/metrics")).text


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    yield from (target["expr"] for panel in panels() for target in panel["targets"])


def rules() -> list[dict[str, Any]]:
    return [rule for group in RULES["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def selectors(expression: str) -> Iterator[tuple[str, str]]:
    """Yield names of metrics, with the text in braces after each."""
    bare = re.sub(r"\bby \([^)]*\)", "", re.sub(r"\[\w+\]", "", expression))
    for name, _, inside in re.findall(r"([a-z_]\w*)(\{([^}]*)\})?", re.sub(r'"[^"]*"(?![^{]*\})', "", bare)):
        if name not in WORDS:
            yield name, inside


def matchers(inside: str) -> list[tuple[str, str, str]]:
    return re.findall(r'(\w+)(=~|!~|!=|=)"([^"]*)"', inside)


def list_unknown(expression: str, exported: Exported) -> list[str]:
    """List the names in an expression that no service exports."""
    unknown = []
    for name, inside in selectors(expression):
        labels = OF_PROMETHEUS.get(name) or (exported.labels[name] | STANDARD if name in exported.labels else None)
        if labels is None:
            unknown.append(name)
            continue
        for label, operator, value in matchers(inside):
            known_names = exported.values[name, label] | LATER.get((name, label), set())
            if label not in labels or (operator == "=" and label in FIXED and value not in known_names):
                unknown.append(f"{name}.{label}={value}")
    for grouped in re.findall(r"\bby \(([^)]*)\)", expression):
        known_names = set().union(*(exported.labels.get(name, set()) for name, _ in selectors(expression)))
        unknown += [f"by {word}" for word in grouped.replace(" ", "").split(",") if word not in known_names]
    return unknown


def test_every_name_in_rules_and_panels_is_exported(exported: Exported) -> None:
    assert len(list(expressions())) > 40
    assert {expression: bad for expression in expressions() if (bad := list_unknown(expression, exported))} == {}


@pytest.mark.parametrize(
    ("expression", "bad"),
    [
        ("privateer_reports_acepted_total > 0", ["privateer_reports_acepted_total"]),
        ("rate(privateer_http_request_duration_seconds[5m])", ["privateer_http_request_duration_seconds"]),
        ('rate(privateer_stage_seconds_count{stage="lern"}[5m])', ["privateer_stage_seconds_count.stage=lern"]),
        ('privateer_disk_free_bytes{path="data"}', ["privateer_disk_free_bytes.path=data"]),
        ("sum by (kind) (privateer_batches_total)", ["by kind"]),
        ('up{job=~"privateer-.*"} == 0', []),
    ],
)
def test_a_planted_misnomer_is_found(expression: str, bad: list[str], exported: Exported) -> None:
    assert list_unknown(expression, exported) == bad


def test_the_dashboard_shows_every_metric(exported: Exported) -> None:
    metrics = {name for panel in panels() for target in panel["targets"] for name, _ in selectors(target["expr"])}
    families = {re.sub(r"_(total|bucket|count|sum)$", "", name) for name in metrics}
    assert families - exported.families == set()
    assert exported.families - families == {"process_virtual_memory_bytes"}
    assert all(family.startswith(("privateer_", "process_")) for family in families)


def test_the_docs_describe_every_metric(exported: Exported) -> None:
    described = set(re.findall(r"`((?:privateer|process)_\w+)", (OPERATIONS / "metrics.md").read_text()))
    assert {name.removesuffix("_total") for name in described} == exported.families


def test_every_alert_has_its_section_and_says_what_to_do() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) > 15
    sections = re.findall(r"^## (.+)\n\n(\S.*)", (OPERATIONS / "alerts.md").read_text(), re.MULTILINE)
    assert [title for title, _ in sections] == names
    for rule in rules():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert set(rule["annotations"]) == {"summary", "action", "runbook_url"}
        assert all(text.strip() for text in rule["annotations"].values())
        page = "https://docs.example/operations/alerts.html"
        assert rule["annotations"]["runbook_url"] == f"{page}#{rule['alert'].lower()}"
        assert re.fullmatch(r"\d+[mhd]", rule.get("for", "1m"))


def test_the_alert_and_the_doctor_ask_for_as_much_of_a_disk_and_as_new_a_backup() -> None:
    by_name = {rule["alert"]: rule["expr"] for rule in rules()}
    assert set(re.findall(r"< (\d+)", by_name["PrivateerDiskFull"])) == {str(SPARE_BYTES)}
    assert re.findall(r"> (\d{2,})", by_name["PrivateerBackupFails"]) == [str(BACKUP_SECONDS)]

"""Reports of every algorithm, of a hostile server's answers, and of missing experiments."""

import base64
import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest

from privateer_core.algorithms import ALGORITHMS, algorithm
from privateer_core.answer import Answer
from privateer_core.answer.conclusion import Headline, Rule, Rules
from privateer_core.answer.estimates import Effect, Estimate
from privateer_core.answer.facts import Fact, Kind, Table
from privateer_core.answer.parts import (
    BinMeans,
    DriftTest,
    Figures,
    Gain,
    GuardrailEffects,
    MeansOfBin,
    Recommendation,
    Recommendations,
)
from privateer_core.answer.policy_view import ArmsOfBin, ArmsOfGroup, BinShares, GroupShares, PolicyView
from privateer_core.answer.share_source import ShareSource
from privateer_core.codec import encode
from privateer_core.errors import Unavailable
from privateer_core.spec.spec import Spec
from privateer_lab.audit.whole_experiments import make_contributions
from privateer_lab.cli.command_line import main
from privateer_lab.pages.report import ReportFindings, list_warnings, render_html, summary_paragraph
from privateer_lab.pages.review.subject import ExperimentStanding
from privateer_lab.render.policy_pictures import draw_policy
from privateer_lab.render.tables import part_tables
from privateer_lab.services.demo import demo_spec
from privateer_lab.services.processes import Services, free_port, run_services
from privateer_lab.services.rest import create_experiment, parse_policy
from privateer_server.rounds.schedule import Schedule
from tests.support.answers import PEOPLE, SENTENCE, published
from tests.support.pages import Page, check
from tests.support.specs import make_spec

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7*7 }}'
STANDING = ExperimentStanding("open", 3, 2500, PEOPLE, {})
NOTHING = Answer("learning", 2000, 2, 0.95)


def report_of(spec: Spec, **changes: Any) -> ReportFindings:
    """Return the findings that a server publishes of an experiment after two rounds."""
    schedule, rng = Schedule(spec), np.random.default_rng(5)
    step = schedule.open(7)
    for _ in range(2):
        coins = rng.integers(0, 2**32, step.batch_size, dtype=np.uint32)
        reports = make_contributions(spec, step.policy, rng.random((step.batch_size, spec.dimension)), coins, 0.0)
        step = schedule.advance(step, step.policy.terms.mechanism.simulate(reports, rng), 7)
    policy = parse_policy(msgspec.to_builtins(step.policy.view(spec)))
    answer = changes.pop("answer", None) or schedule.answer(step)
    assert encode(step.state)
    usual = {
        "spec": spec,
        "standing": STANDING,
        "origin": "http://s/experiments/test",
        "policy": policy,
        "published": changes.pop("published", None) or published(answer, spec.name),
    }
    return ReportFindings(**(usual | {"rounds": 2, "promise": "Each person is promised epsilon 1."} | changes))


def shows(*bins: ArmsOfBin, columns: tuple[str, ...] = ("x1",)) -> PolicyView:
    """A policy of bins."""
    return PolicyView("partition", 3, BinShares(columns, bins))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_has_a_report(name: str) -> None:
    spec = next(iter(algorithm(name).spec.instances().values()))
    findings = report_of(spec)
    page = check(render_html(findings, "http://127.0.0.1:8000"))
    assert (
        "Of 20,000 people planned: 2,000 counted in closed rounds; 500 held in the open round; 17,500 not asked."
        in page.text
    )
    assert "2 rounds were learned from." in page.text
    assert findings.promise in page.text
    assert f"privateer answer {spec.name} --as policy --json" in page.text
    assert "--url" not in page.text
    assert page.images


def test_a_map_has_the_area_of_each_arm_for_screen_readers() -> None:
    halves = (
        ArmsOfBin((0.0, 0.0), (0.25, 1.0), (), {"arm-0": 1.0}),
        ArmsOfBin((0.25, 0.0), (1.0, 1.0), (), {"arm-1": 1.0}),
    )
    picture = draw_policy(BinShares(("x1", "x2"), halves), make_spec())
    body = base64.b64decode(picture.source.partition(",")[2]).decode()
    assert body.startswith("<?xml")
    assert picture.description == "A map, x1 across and x2 up: arm-0 on 25%, arm-1 on 75%."


def test_tables_write_bins_as_people_do_from_left_to_right() -> None:
    findings = report_of(make_spec({"experiment.horizon": 20_000}))
    text = check(render_html(findings, "http://127.0.0.1:8000")).text
    assert re.search(r"x1 from 0 to 0\.\d+", text)
    assert not re.search(r"x1 0, 0\.| -0(\.0+)?[ )]", text)
    starts = [float(start) for start in re.findall(r"x1 from ([\d.]+) to", text[text.index("The policy as tables") :])]
    assert len(starts) == len(findings.policy.shows.bins) > 1
    assert starts == sorted(starts)


def test_a_map_has_nobody_where_there_is_no_bin() -> None:
    policy = shows(ArmsOfBin((0.0, 0.0), (1.0, 0.5), (), {"arm-0": 1.0}), columns=("x1", "x2"))
    assert "arm-0 on 50%." in draw_policy(policy.shows, make_spec()).description


def test_no_mean_is_beyond_the_bounds_of_rewards() -> None:
    mean = (Estimate.within("a", 1.03, 0.196, (0.0, 1.0)),)
    (titled,) = part_tables(BinMeans(("x1",), (MeansOfBin((0.0,), (1.0,), (), mean),), 0.95))
    assert titled.rows[0]["a"] == "1.000 (0.834 to 1.000, at the bound)"


def test_thousands_of_bins_are_a_small_picture() -> None:
    sides = 45
    bins = [
        ArmsOfBin((i / sides, j / sides), ((i + 1) / sides, (j + 1) / sides), (), {"a": 0.5, "b": 0.5})
        for i in range(sides)
        for j in range(sides)
    ]
    picture = draw_policy(BinShares(("x1", "x2"), tuple(bins)), make_spec())
    assert len(picture.source) < 400_000


def test_text_of_a_hostile_server_stays_text() -> None:
    columns: dict[str, Kind] = {HOSTILE: "words", "value": "words"}
    parts = (
        Table.of(HOSTILE, columns, ((HOSTILE, HOSTILE), ("sample ratio", HOSTILE))),
        GuardrailEffects(HOSTILE, (Effect(HOSTILE, HOSTILE, 0.2, 0.1, 0.3, "decided better", remark=HOSTILE),)),
        Figures(HOSTILE, (Fact(HOSTILE, HOSTILE),)),
        Recommendations((Recommendation(HOSTILE, HOSTILE, "ahead, and not decided"),)),
    )
    answer = Answer(
        *("learning", 10, 1, 0.95),
        recommended=HOSTILE,
        estimates=(Estimate(HOSTILE, 0.5, 0.4, 0.6),),
        gain=Gain(HOSTILE, 0.1, 0.0, 0.2),
        warnings=(HOSTILE,),
        parts=parts,
    )
    groups = GroupShares((ArmsOfGroup(HOSTILE, {HOSTILE: 1.0}),))
    policy = PolicyView(HOSTILE, 3, groups, (Fact(HOSTILE, HOSTILE),))
    standing = ExperimentStanding("open", 1, 10, PEOPLE, {HOSTILE: 7})
    headline = Headline("one arm", HOSTILE, "decided", HOSTILE, HOSTILE, 0.1, 0.0, 0.2)
    rule = Rule(HOSTILE, (), HOSTILE, 1.0, 0.5, HOSTILE, 0.1, 0.9, "likely")
    body = published(
        answer, HOSTILE, headline=headline, rules=Rules((rule,), 1.0, HOSTILE, ShareSource.ASSUMED), control=HOSTILE
    )
    findings = report_of(make_spec(), published=body, policy=policy, standing=standing, origin=f"http://s/{HOSTILE}")
    page = check(render_html(findings, f"http://s/{HOSTILE}"))
    assert page.text.count("<script>alert(1)</script>") > 10
    assert "{{ 7*7 }}" in page.text
    assert not re.search(r"onerror=alert\(2\)>49", page.text)
    for image in page.images:
        elements = list(ElementTree.fromstring(base64.b64decode(image["src"].partition(",")[2])).iter())
        assert not [part for part in elements if "script" in str(part.tag)]
        assert not [name for part in elements for name in part.attrib if name.startswith("on")]


def answer_of(*rows: tuple[str, float, float, float]) -> Answer:
    return msgspec.structs.replace(NOTHING, estimates=tuple(Estimate(*row) for row in rows))


BETTER, OPEN, UNKNOWN = (
    Effect("b", None, 0.2, 0.1, 0.3, "decided better"),
    Effect("c", None, 0.2, -0.1, 0.3, "its interval holds 0"),
    Effect("d", None, None, None, None, "too few people beside the noise"),
)


def effects_of(*effects: Effect, **changes: Any) -> Answer:
    return msgspec.structs.replace(NOTHING, effects=effects, **changes)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (answer_of(("a", 0.5, 0.4, 0.6)), SENTENCE),
        (effects_of(BETTER), SENTENCE),
        (effects_of(BETTER, OPEN), "Of 2 effects 1 is decided better; of 1 the interval holds 0."),
        (effects_of(OPEN, OPEN), "None of 2 effects is decided: their intervals hold 0."),
        (effects_of(BETTER, BETTER), "All 2 effects are decided better."),
        (
            effects_of(OPEN, OPEN, UNKNOWN),
            "Of 3 effects none is decided; of 2 the interval holds 0; for 1 there are too few people beside the noise.",
        ),
        (effects_of(OPEN, stage="ended", stop_reason="its horizon"), "Its horizon ended it"),
        (effects_of(OPEN, stage="ended", stop_reason="an operator"), "An operator stopped it"),
    ],
)
def test_the_summary_follows_from_the_answer(answer: Answer, says: str) -> None:
    assert says in summary_paragraph(report_of(make_spec(), answer=answer))


def test_estimates_are_a_table_unless_they_are_effects() -> None:
    rows = ("a", 0.512, 0.4, 0.6), ("b", 0.2, 0.1, 0.3)
    page = check(render_html(report_of(make_spec(), answer=answer_of(*rows)), "http://127.0.0.1:8000"))
    assert "confidence name value low high a 0.512 0.4 0.6 b 0.2 0.1 0.3" in " ".join(page.text.split())
    mixed = msgspec.structs.replace(answer_of(*rows), effects=(BETTER,))
    assert "0.512" not in check(render_html(report_of(make_spec(), answer=mixed), "http://127.0.0.1:8000")).text


def test_warnings_are_listed_first() -> None:
    assert list_warnings(report_of(make_spec())) == []
    harm = (
        Effect("b", None, 0.02, 0.01, 0.03, "decided better"),
        Effect("c", None, 0.0, -0.1, 0.1, "its interval holds 0"),
    )
    parts = GuardrailEffects("refund", harm), DriftTest(detected=True, evidence=4.0, false_alarm_rate=1e-3, since=5000)
    findings = report_of(
        make_spec(),
        answer=msgspec.structs.replace(NOTHING, warnings=("sample ratio: arms are lost",), parts=parts),
        standing=ExperimentStanding("open", 2, 80, PEOPLE, {"round-closed": 30}),
    )
    warnings = " | ".join(list_warnings(findings))
    for text in (
        "sample ratio: arms are lost",
        "guardrail: refund changes: b 0.02",
        "30 reports were refused",
        "rewards move",
    ):
        assert text in warnings
    assert "c 0" not in warnings
    assert all(text in Page(render_html(findings, "http://s")).text for text in ("Look at this first", "arms are lost"))


@pytest.mark.parametrize("odd", [{}, {"bins": 3}, {"shows": {"kind": "bins", "bins": 3}}, None, [1]])
def test_a_malformed_policy_is_refused(odd: Any) -> None:
    with pytest.raises(Unavailable, match="not a policy"):
        parse_policy(odd)


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with run_services(tmp_path_factory.mktemp("services"), free_port(), free_port(), quiet=True) as services:
        create_experiment(services.admin, demo_spec(4000), services.token)
        yield services


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    code = int(stop.value.code or 0)
    return code, err if code else out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("answer", "nobody", "--as", "report"), "NAME: the server has no such experiment"),
        (("answer", "a/../b", "--as", "report"), "NAME: is not the name of an experiment"),
        (("review", "nobody"), "NAME: the server has no such experiment"),
        (("answer", "demo", "--as", "report", "--out", "."), "--out: . is a folder (name a file)"),
        (("answer", "demo", "--as", "report", "--out", "none/x.html"), "--out: there is no folder none"),
        (
            ("answer", "demo", "--as", "report", "--url", "http://127.0.0.1:9"),
            "--url: no answer from the service at http://127.0.0.1:9 ",
        ),
        (("answer", "demo", "--as", "report", "--url", "nowhere"), "--url: not a URL"),
    ],
)
def test_bad_input_is_one_sentence(at, arguments, says, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRIVATEER_URL", at.server)
    code, out = run(capsys, *arguments)
    expected = 4 if "no such" in says else 3 if "no answer" in says else 2
    assert (code, out.startswith("privateer: "), out.count("\n")) == (expected, True, 1), out
    assert says in out

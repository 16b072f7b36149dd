"""Reports of every algorithm, of what a hostile server answers, and of what is not there."""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import msgspec
import numpy as np
import pytest

from privateer_core.algorithms import ALGORITHMS, algorithm
from privateer_core.answer import Answer
from privateer_core.answer.conclusion import Headline, Rule, Rules
from privateer_core.answer.estimates import Effect, Estimate
from privateer_core.answer.facts import Among, Between, Fact, Kind, Table
from privateer_core.answer.parts import (
    BinMeans,
    Contradiction,
    Figures,
    Gain,
    GuardrailEffects,
    MeansOfBin,
    Recommendation,
    Recommendations,
)
from privateer_core.answer.people import People
from privateer_core.answer.policy_view import ArmsOfBin, ArmsOfGroup, BinShares, GroupShares, PolicyView
from privateer_core.answer.shares import ShareSource
from privateer_core.codec import encode
from privateer_core.errors import Unavailable
from privateer_core.spec.spec import Spec
from privateer_lab.answer_tables import rows_of
from privateer_lab.audit.whole_experiments import contribution
from privateer_lab.cli.command_line import main
from privateer_lab.pages import report_pictures
from privateer_lab.pages.report_findings import Findings, meaning, warnings
from privateer_lab.pages.report_page import html
from privateer_lab.pages.review.subject import ExperimentStanding
from privateer_lab.services.demo import demo_spec
from privateer_lab.services.processes import Services, free_port, running
from privateer_lab.services.rest import create, policy_in
from privateer_server.rounds.loop import Schedule
from tests.support.pages import Page, check
from tests.support.published_answers import PEOPLE, SENTENCE, published
from tests.support.specs import make_spec

ROOT = Path(__file__).parents[4]
HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7*7 }}'
STANDING = ExperimentStanding("open", 3, 2500, PEOPLE, {})
NOTHING = Answer("learning", 2000, 2, 0.95)


def found_of(spec: Spec, **changes: Any) -> Findings:
    """What a server tells of an experiment after two rounds."""
    schedule, rng = Schedule(spec), np.random.default_rng(5)
    step = schedule.open(7)
    for _ in range(2):
        coins = rng.integers(0, 2**32, step.batch, dtype=np.uint32)
        made = contribution(spec, step.policy, rng.random((step.batch, spec.dimension)), coins, 0.0)
        step = schedule.close(step, step.policy.terms.mechanism.simulate(made, rng), 7)
    policy = policy_in(msgspec.to_builtins(step.policy.view(spec)))
    answer = changes.pop("answer", None) or schedule.answer(step)
    assert encode(step.state)
    usual = {
        "spec": spec,
        "standing": STANDING,
        "origin": "http://s/experiments/test",
        "policy": policy,
        "published": changes.pop("published", None) or published(answer, spec.name),
    }
    return Findings(**(usual | {"rounds": 2, "promise": "Each person is promised epsilon 1."} | changes))


def shows(*bins: ArmsOfBin, columns: tuple[str, ...] = ("x1",)) -> PolicyView:
    """A policy of bins."""
    return PolicyView("partition", 3, BinShares(columns, bins))


def strip(low: float, high: float, **arms: float) -> ArmsOfBin:
    """A bin of one column."""
    return ArmsOfBin((low,), (high,), (Between("x1", low, high),), arms)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_has_a_report(name: str) -> None:
    spec = next(iter(algorithm(name).spec.instances().values()))
    found = found_of(spec)
    page = check(html(found, "http://127.0.0.1:8000"))
    assert (
        "Of 20,000 people planned: 2,000 counted in closed rounds; 500 held in the open round; 17,500 not asked."
        in page.text
    )
    assert "2 rounds were learned from." in page.text
    assert found.promise in page.text
    assert f"privateer answer {spec.name} --as policy --json" in page.text
    assert "--url" not in page.text
    assert page.images


def test_a_map_has_every_bin_and_says_so_to_who_does_not_see_it() -> None:
    found = found_of(make_spec({"experiment.horizon": 20_000}))
    drawn = found.policy.shows.bins
    picture = report_pictures.of_policy(found.policy.shows, found.spec)
    body = base64.b64decode(picture.source.partition(",")[2]).decode()
    assert body.startswith("<?xml")
    assert f"{len(drawn)} bins" in picture.title
    counted = [int(word) for word in re.findall(r" in (\d+)", picture.title)]
    assert sum(counted) == len(drawn) > 1


def test_tables_write_bins_as_people_do_from_left_to_right() -> None:
    found = found_of(make_spec({"experiment.horizon": 20_000}))
    text = check(html(found, "http://127.0.0.1:8000")).text
    assert re.search(r"x1 from 0 to 0\.\d+", text)
    assert not re.search(r"x1 0, 0\.| -0(\.0+)?[ )]", text)
    starts = [float(one) for one in re.findall(r"x1 from ([\d.]+) to", text[text.index("The policy as tables") :])]
    assert len(starts) == len(found.policy.shows.bins) > 1
    assert starts == sorted(starts)


def test_estimates_about_larger_bins_say_that_the_map_has_more() -> None:
    mean = (Estimate.within("a", -0.0001, 0.0002, (0.0, 1.0)),)
    halves = tuple(MeansOfBin((low,), (low + 0.5,), (Between("x1", low, low + 0.5),), mean) for low in (0.5, 0.0))
    answer = msgspec.structs.replace(NOTHING, people=10, parts=(BinMeans(("x1",), halves, 0.95),))
    policy = shows(*(strip(i / 4, (i + 1) / 4, a=1.0) for i in range(4)))
    found = found_of(make_spec(dimension=1))._replace(policy=policy, published=published(answer))
    text = check(html(found, "")).text
    assert "Reports are about 2 bins; the policy divides them further, into 4" in text
    assert "x1 from 0 to 0.5 0.000 (0.000 to 0.000, at the bound) x1 from 0.5 to 1 0.000" in " ".join(text.split())
    assert "estimates by bin" in text
    assert "estimates by bin" not in check(html(found._replace(rounds=0), "")).text
    many = shows(*(strip(i / 90, (i + 1) / 90, a=1.0) for i in range(90)))
    text = check(html(found_of(make_spec())._replace(policy=many, published=published(NOTHING)), "")).text
    assert "These are the first 60 rows; the raw data have 30 more." in text


def test_estimates_name_people_by_the_values_that_they_have() -> None:
    mean = (Estimate("a", 0.5, 0.3, 0.7),)
    bins = (
        MeansOfBin((0.5, 0.5), (1.0, 1.0), (Among("x", (), missing=True),), mean),
        MeansOfBin((0.0, 0.0), (0.5, 0.5), (Between("x", 10.0, 20.0),), mean),
    )
    (titled,) = rows_of(BinMeans(("x", "x is missing"), bins, 0.95))
    assert [row["people"] for row in titled.rows] == ["x from 10 to 20", "x: missing"]
    assert titled.rows[0]["a"] == "0.500 (0.300 to 0.700)"


def test_shares_of_the_space_leave_out_where_nobody_can_be() -> None:
    policy = shows(
        ArmsOfBin((0.0, 0.0, 0.0), (1.0, 0.5, 1.0), (), {"a": 1.0}),
        ArmsOfBin((0.5, 0.5, 0.0), (1.0, 1.0, 1.0), (), {"b": 1.0}),
        columns=("x1", "x1 is missing", "x2"),
    )
    assert "a 67%, b 33%" in report_pictures.of_policy(policy.shows, make_spec()).title


def test_no_mean_is_beyond_the_bounds_of_rewards() -> None:
    mean = (Estimate.within("a", 1.03, 0.196, (0.0, 1.0)),)
    (titled,) = rows_of(BinMeans(("x1",), (MeansOfBin((0.0,), (1.0,), (), mean),), 0.95))
    assert titled.rows[0]["a"] == "1.000 (0.834 to 1.000, at the bound)"


def test_thousands_of_bins_are_a_small_picture() -> None:
    sides = 45
    drawn = [
        ArmsOfBin((i / sides, j / sides), ((i + 1) / sides, (j + 1) / sides), (), {"a": 0.5, "b": 0.5})
        for i in range(sides)
        for j in range(sides)
    ]
    picture = report_pictures.of_policy(BinShares(("x", "y"), tuple(drawn)), make_spec())
    assert picture.source.startswith("data:image/png")
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
    headline = Headline("one option", HOSTILE, "decided", HOSTILE, HOSTILE, 0.1, 0.0, 0.2)
    rule = Rule(HOSTILE, (), HOSTILE, 1.0, 0.5, HOSTILE, 0.1, 0.9, "likely")
    said = published(
        answer, HOSTILE, headline=headline, rules=Rules((rule,), 1.0, HOSTILE, ShareSource.ASSUMED), control=HOSTILE
    )
    found = found_of(make_spec(), published=said, policy=policy, standing=standing, origin=f"http://s/{HOSTILE}")
    page = check(html(found, f"http://s/{HOSTILE}"))
    assert page.text.count("<script>alert(1)</script>") > 10
    assert "{{ 7*7 }}" in page.text
    assert not re.search(r"onerror=alert\(2\)>49", page.text)
    for one in page.images:
        drawn = list(ElementTree.fromstring(base64.b64decode(one["src"].partition(",")[2])).iter())
        assert not [part for part in drawn if "script" in str(part.tag)]
        assert not [name for part in drawn for name in part.attrib if name.startswith("on")]


def answer_of(*rows: tuple[str, float, float, float]) -> Answer:
    return msgspec.structs.replace(NOTHING, estimates=tuple(Estimate(*row) for row in rows))


BETTER, OPEN, UNKNOWN = (
    Effect("b", None, 0.2, 0.1, 0.3, "decided better"),
    Effect("c", None, 0.2, -0.1, 0.3, "its interval holds 0"),
    Effect("d", None, None, None, None, "too few people beside the noise"),
)


def effects_of(*effects: Effect, **more: Any) -> Answer:
    return msgspec.structs.replace(NOTHING, effects=effects, **more)


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
        (effects_of(OPEN, status="ended", ended="its horizon"), "Its horizon ended it"),
        (effects_of(OPEN, status="ended", ended="an operator"), "An operator stopped it"),
    ],
)
def test_what_an_answer_means(answer: Answer, says: str) -> None:
    assert says in meaning(found_of(make_spec(), answer=answer))


def test_a_fact_that_is_not_known_has_no_row() -> None:
    part = Figures("what it rests on", (Fact("ended by", None), Fact("people", 20)))
    assert rows_of(part) == [("what it rests on", [{"fact": "people", "value": 20}])]


def test_estimates_are_a_table_unless_they_are_effects() -> None:
    rows = ("a", 0.512, 0.4, 0.6), ("b", 0.2, 0.1, 0.3)
    page = check(html(found_of(make_spec(), answer=answer_of(*rows)), "http://127.0.0.1:8000"))
    assert "estimates name value low high a 0.512 0.4 0.6 b 0.2 0.1 0.3" in " ".join(page.text.split())
    both = msgspec.structs.replace(answer_of(*rows), effects=(BETTER,))
    assert "0.512" not in check(html(found_of(make_spec(), answer=both), "http://127.0.0.1:8000")).text


def test_nothing_learned_is_said() -> None:
    found = found_of(make_spec(), rounds=0, answer=NOTHING)
    assert "No round is complete yet, so nothing has been learned" in meaning(found)
    ended = meaning(found._replace(standing=ExperimentStanding("stopped", 2, 0, People(20_000, not_asked=20_000), {})))
    assert "no report supports what the policy gives" in ended
    assert "yet" not in ended


def test_what_to_look_at_first() -> None:
    assert warnings(found_of(make_spec())) == []
    lost = (
        Effect("b", None, 0.02, 0.01, 0.03, "decided better"),
        Effect("c", None, 0.0, -0.1, 0.1, "its interval holds 0"),
    )
    parts = GuardrailEffects("refund", lost), Contradiction(found=True, evidence=4.0, false_alarm_rate=1e-3, since=5000)
    found = found_of(
        make_spec(),
        answer=msgspec.structs.replace(NOTHING, warnings=("sample ratio: arms are lost",), parts=parts),
        standing=ExperimentStanding("open", 2, 80, PEOPLE, {"round-closed": 30}),
    )
    said = " | ".join(warnings(found))
    for one in (
        "sample ratio: arms are lost",
        "guardrail: refund changes: b 0.02",
        "30 reports were refused",
        "rewards move",
    ):
        assert one in said
    assert "c 0" not in said
    assert all(one in Page(html(found, "http://s")).text for one in ("Look at this first", "arms are lost"))


@pytest.mark.parametrize("odd", [{}, {"bins": 3}, {"shows": {"kind": "bins", "bins": 3}}, None, [1]])
def test_what_is_no_policy_is_refused(odd: Any) -> None:
    with pytest.raises(Unavailable, match="not a policy"):
        policy_in(odd)


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with running(tmp_path_factory.mktemp("services"), free_port(), free_port(), quiet=True) as services:
        create(services.admin, demo_spec(4000), services.token)
        yield services


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    code = int(stop.value.code or 0)
    return code, err if code else out


def test_a_running_experiment(at: Services, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "demo.html"
    assert run(capsys, "answer", "demo", "--as", "report", "--url", at.server, "--out", str(out))[0] == 0
    page = check(out.read_text())
    assert "Each person is promised epsilon 1, delta 1e-6, against the server." in page.text
    assert f"privateer answer demo --url {at.server} --as progress --json" in page.text
    pack = tmp_path / "pack"
    assert run(capsys, "review", "demo", "--url", at.server, "--out", str(pack), "--no-audit")[0] == 0
    review = json.loads((pack / "review.json").read_text())
    assert review["standing"]["people"]["planned"] == 4000
    left = httpx.get(f"{at.server}/experiments/demo/risk").json()["risks"]
    assert [one["advantage"] for one in review["claims"]] == [one["advantage"] for one in left]


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
def test_bad_input_is_one_sentence(
    at: Services,
    arguments: tuple[str, ...],
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRIVATEER_URL", at.server)
    code, out = run(capsys, *arguments)
    assert (code, out.startswith("privateer: "), out.count("\n")) == (2, True, 1), out
    assert says in out


def test_the_demo_ends_with_a_page_and_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, "demo", "--users", "4000", "--no-keep", "--out", str(tmp_path / "o" / "demo.html"))
    assert code == 0
    assert "4,000 people, " in out
    assert "A = left" in out
    page = check((tmp_path / "o" / "demo.html").read_text())
    assert "finished" in page.text
    assert len(page.images) == 1

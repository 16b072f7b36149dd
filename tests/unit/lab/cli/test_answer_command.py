"""``privateer answer``: the headline first, then rules, gain and effects; names of strangers stay text."""

import json
import re
from typing import Any

import pytest
from markdown_it import MarkdownIt

from privateer_core.answer import Answer
from privateer_core.answer.conclusion import Headline, Rule, Rules
from privateer_core.answer.estimates import Effect, Estimate
from privateer_core.answer.facts import Between
from privateer_core.answer.parts import Gain, Loss
from privateer_core.answer.share_source import ShareSource
from privateer_lab.cli.command_line import main
from tests.support.answers import SENTENCE, document

HOSTILE = '"><script>alert(1)</script> [red]x[/red] [a](https://evil.example) | ![b](http://evil.example/p.png)'
RULES = Rules(
    (
        Rule("x1 below 0.5", (Between("x1", 0.0, 0.5),), "left", 0.3, 0.7, "right", 0.2, 0.97, "almost certain"),
        Rule("everybody else", (), "right", 0.7, 0.6, "left", 0.01, 0.6, "not known"),
    ),
    0.98,
    ShareSource.COUNTED.sentence,
    ShareSource.COUNTED,
)
FOUND: dict[str, Any] = {
    "rules": RULES,
    "gain": Gain("right", 0.05, 0.02, 0.08, 2000),
    "means": (0.63, 0.5),
    "next_steps": ("About 9,000 people in all would tell.",),
}
ANSWER = Answer("learning", 2000, 2, None)


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: Any, *options: str) -> str:
    monkeypatch.setattr("privateer_lab.services.rest.request_json", lambda *_, **__: answer)
    with pytest.raises(SystemExit) as stop:
        main(["answer", "test", *options])
    assert stop.value.code in (None, 0)
    return capsys.readouterr().out


def test_an_answer_has_option_segment_effect_and_confidence(monkeypatch, capsys):
    text = run(monkeypatch, capsys, document(ANSWER, **FOUND))
    lines = text.splitlines()
    assert lines[0] == SENTENCE
    assert "these 2 rules have 98% of the gain of the whole policy" in lines[1]
    for row in (
        ["x1 below 0.5", "left", "97%, almost certain", "30%", "0.7", "right", "+0.2"],
        ["everybody else", "right", "60%, not known", "70%", "0.6", "left", "+0.01"],
        ["0.63", "0.5", "+0.05", "+10.0%", "+0.02 to +0.08"],
    ):
        assert any([cell.strip() for cell in line.split("│")[1:-1]] == row for line in lines), row
    assert lines[-5:] == [
        "About 9,000 people in all would tell.",
        "It rests on 2,000 people in 2 rounds; the experiment is open, begun 2026-11-20. Of 20,000 people planned: "
        "2,000 counted in closed rounds; 500 held in the open round; 17,500 not asked. 500 more close the open round.",
        ShareSource.COUNTED.sentence,
        "It cost each person epsilon 1.",
        "Rewards are from 0 to 1, and more counts as better; effects are differences of means.",
    ]


def test_a_hundred_segments_of_the_same_verdict_share_a_row(monkeypatch, capsys):
    """Decided segments and effects on all participants have rows of their own; an empty cell says why."""
    cities = [
        Effect("b", f"city=c{k}", 0.01 * (k - 50), -1.0, 1.0, "decided better" if k == 99 else "its interval holds 0")
        for k in range(100)
    ]
    losses = [Loss(f"b: city=c{k}", 0.25 if k < 99 else 0.5, 1.0) for k in range(100)]
    text = run(
        monkeypatch,
        capsys,
        document(
            ANSWER,
            effects=(Effect("b", None, 0.1, 0.05, 0.2, "decided better"), *cities),
            expected_losses=tuple(losses),
            control="a",
            baseline=Estimate("a", 0.5, 0.4, 0.6),
            no_relative="no relative effects of segments: the control's mean in each is not estimated",
        ),
    )
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    assert ["b", "99 segments", "-0.5 to +0.48", "", "", "no", "its interval holds 0"] in rows
    assert [row[1] for row in rows[:3]] == ["everybody", "city=c99", "99 segments"]
    assert ["b: 99 segments", "0.25", "1"] in rows
    assert ["b: city=c99", "0.5", "1"] in rows
    assert len(rows) == 5
    assert "with --json" not in text
    assert "no relative effects of segments: the control's mean in each is not estimated" in " ".join(text.split())


@pytest.mark.parametrize("face", ["screen", "markdown"])
def test_names_of_strangers_stay_text(face, monkeypatch, capsys):
    rule = Rule(HOSTILE, (), HOSTILE, 1.0, 0.5, HOSTILE, 0.1, 0.9, "likely")
    hostile = document(
        Answer("learning", 10, 1, 0.95, warnings=(HOSTILE,)),
        HOSTILE,
        headline=Headline("rules", HOSTILE, "likely", HOSTILE),
        rules=Rules((rule,), 1.0, HOSTILE, ShareSource.ASSUMED),
        gain=Gain(HOSTILE, 0.1, 0.0, 0.2),
        effects=(Effect(HOSTILE, HOSTILE, 0.1, 0.0, 0.2, "its interval holds 0"),),
        estimates=(Estimate(HOSTILE, 0.5, 0.4, 0.6),),
        control=HOSTILE,
        next_steps=(HOSTILE,),
    )
    text = run(monkeypatch, capsys, hostile, *(["--markdown"] if face == "markdown" else []))
    if face == "markdown":
        tokens = MarkdownIt("commonmark").enable("table").parse(text)
        kinds = {child.type for token in tokens for child in token.children or []}
        assert kinds <= {"text", "text_special", "strong_open", "strong_close"}
        assert not re.search(r"://", text)
    else:
        assert text.count("[red]x[/red]") > 8
        assert "\x1b" not in text


def test_json_has_the_whole_answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answer = document(ANSWER, **FOUND)
    printed = json.loads(run(monkeypatch, capsys, answer, "--json"))
    assert printed == json.loads(json.dumps(answer | {"format": "privateer/output/1"}))

"""A server chooses the names and words of a result: reports and pictures show them as text and as nothing else."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from privateer_core.answer import Answer
from privateer_core.answer.estimates import Estimate
from privateer_core.answer.facts import Table
from privateer_core.answer.parts import EffectPath, EffectsOverTime
from privateer_lab.pages.answer_markdown import markdown
from privateer_lab.pages.plots import save
from privateer_lab.pages.result_pictures import draw_effects
from tests.support.published_answers import document, published
from tests.unit.lab.cli.test_command_line import run

NAMES = [
    "[now](https://evil.example/a)",
    "![seen](http://evil.example/pixel.png)",
    "<https://evil.example>",
    "<script>alert(1)</script>",
    "see www.evil.example or WWW.evil.example",
    "mail me@evil.example",
    "$\\frac{1}{$ and $$x$$",
    "**bold** _it_ `code` ~~gone~~",
    "a | b || c \\| d",
    "&lt;img src=x&gt; &#60;b&#62;",
    "_hidden",
    "[red]screen[/red] [/]",
]
CLAIMS = [{"against": NAMES[0], "about": NAMES[3], "epsilon": 1.0, "delta": 0.0}]


def result(names: list[str] = NAMES, *, has_parts: bool = True) -> Answer:
    paths = tuple(EffectPath(name, name, (0.1,), (0.0,), (0.2,)) for name in names)
    table = Table.of(names[1], {names[2]: "words", names[3]: "words"}, ((names[4], names[5]),))
    return Answer(
        status="learning",
        people=None,
        rounds=None,
        confidence=0.95,
        recommended=names[0],
        estimates=tuple(Estimate(name, 0.1, 0.0, 0.2) for name in names),
        parts=(EffectsOverTime((100,), paths), table) if has_parts else (),
    )


def serve(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]) -> None:
    """Have the server answer so, whatever it is asked."""
    monkeypatch.setattr("privateer_lab.services.rest.ask", lambda *_, **__: answer)


def test_markdown_has_no_link_image_html_or_formula_of_a_servers() -> None:
    text = markdown(published(result(), NAMES[0]), CLAIMS)
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    inline = [child for token in tokens for child in token.children or []]
    kinds = {token.type for token in [*tokens, *inline]}
    blocks = {
        f"{kind}_{end}"
        for kind in (
            *("heading", "paragraph", "table", "thead", "tbody", "tr", "th", "td"),
            *("strong", "bullet_list", "list_item"),
        )
        for end in ("open", "close")
    }
    assert kinds <= blocks | {"inline", "text", "text_special"}
    shown = "".join(child.content for child in inline)
    assert all(name in shown for name in NAMES)
    assert not re.search(r"\$|://|www\.|@", text, re.IGNORECASE)


def test_pictures_draw_dollars_and_underscores_as_they_are(tmp_path: Path) -> None:
    few = result(NAMES[6:])
    figure = draw_effects(NAMES[6], few)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert {label.strip() for label in labels} == set(NAMES[6:])
    legend = figure.axes[1].get_legend()
    assert legend is not None
    assert len(legend.get_texts()) == len(NAMES[6:])
    assert all(path.stat().st_size for path in save(figure, tmp_path / "effects"))


def test_a_picture_of_very_many_estimates_has_the_first(tmp_path: Path) -> None:
    many = result([f"arm: {k}" for k in range(3_000)], has_parts=False)
    figure = draw_effects("many", many)
    assert "2,900 more of 3,000 are not drawn" in figure.axes[0].get_xlabel()
    assert save(figure, tmp_path / "many")


@pytest.mark.parametrize(
    "change",
    [
        {"estimates": [{"name": "\x1b[2Jgone", "value": 0.1, "low": 0.0, "high": 0.2}]},
        {"estimates": [{"name": "a", "value": 1e400, "low": 0.0, "high": 0.2}]},
        {"warnings": ["a\nb"]},
        {"recommended": "a\u202eb"},
        {"confidence": "high"},
        None,
    ],
)
def test_what_is_not_a_result_is_refused_in_one_line(
    change: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = {} if change is None else document(result())
    found = answer.get("found", {})
    found |= change or {}
    serve(monkeypatch, json.loads(json.dumps(answer)))
    code, out, err = run(capsys, "answer", "trial", "--as", "details")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "not that of an experiment" in err


def test_the_screen_and_json_show_names_as_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(monkeypatch, document(result(has_parts=False)))
    _, shown, _ = run(capsys, "answer", "trial", "--as", "details")
    assert all(name in shown for name in NAMES)
    assert "\x1b" not in shown
    _, printed, _ = run(capsys, "answer", "trial", "--as", "details", "--json")
    assert [one["name"] for one in json.loads(printed)["estimates"]] == NAMES

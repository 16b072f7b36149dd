"""The page draws and states all decisions of a learner, with their reasons."""

import re
from pathlib import Path

import httpx
import msgspec
import pytest

from privateer_core.answer import Answer
from privateer_lab.cli.input_files import load_spec
from privateer_lab.services.processes import Services
from privateer_lab.simulation.simulate import make_simulation, run_to_end
from tests.browser.conftest import Open
from tests.browser.test_views import show, text_of

pytestmark = pytest.mark.browser
_CURVE = Path(__file__).parents[2] / "examples" / "trial-curve.toml"


@pytest.fixture(scope="module")
def curve() -> Answer:
    """The answer of a trial of 64 segments; most arms that are worse are hardly played any more."""
    over = run_to_end(make_simulation(load_spec(_CURVE, []), 0))
    return over.schedule.answer(over.step)


def test_every_decided_loss_of_64_segments_is_drawn(at: Services, new_page: Open, curve: Answer) -> None:
    page = new_page()
    published = httpx.get(f"{at.server}/experiments/shop/answer").json() | {"result": msgspec.to_builtins(curve)}
    page.route("**/experiments/shop/answer", lambda route: route.fulfill(json=published))
    show(page, at, "shop")
    finding = page.locator("#findings .finding", has_text="Effects against the control, by group")
    groups = [effect for effect in curve.effects if effect.group is not None]
    decided = [effect for effect in groups if effect.is_decided]
    losses = [effect for effect in decided if effect.reason == "decided worse"]
    assert (len(groups), len(decided) > len(losses) > 7) == (64, True)
    assert finding.locator("> svg rect.mark").count() == len(decided)
    label = str(finding.locator("> svg").get_attribute("aria-label"))
    assert [effect.group for effect in losses if f"{effect.group} · treated" not in label] == []
    assert label.count("decided worse") == len(losses)
    # What is not drawn at once is counted, none of it is decided, and a click shows it.
    by_text = finding.get_by_text(re.compile(r"^\d+ more of 64, none of them decided$"))
    by_text.click()
    finding.locator("details svg").wait_for()
    assert finding.locator("svg .mark, svg .unknown").count() == 64
    # The words say what the drawing does.
    text = text_of(page, "findings")
    assert f"{len(losses)} worse" in text
    assert "Its horizon ended it" in text


def test_before_the_first_report_no_arm_is_ahead(at: Services, new_page: Open) -> None:
    page = new_page()
    show(page, at, "begun")
    assert "none is ahead" in text_of(page, "policy")
    assert "ahead in" not in text_of(page, "policy")
    assert page.locator("#map text.tick").all_text_contents() == ["18", "99"]
    assert "Nothing is known yet: the first result comes after" in text_of(page, "answer")

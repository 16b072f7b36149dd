"""What a learner decided is what the page draws and says: all of it, with the reasons."""

import re
from pathlib import Path

import httpx
import msgspec
import pytest

from privateer_core.answer import Answer
from privateer_lab.cli.input_files import load_spec
from privateer_lab.services.processes import Services
from privateer_lab.simulation.simulate import simulation, to_the_end
from tests.browser.conftest import Open
from tests.browser.test_views import show, text_of

pytestmark = pytest.mark.browser
_CURVE = Path(__file__).parents[2] / "examples" / "trial-curve.toml"


@pytest.fixture(scope="module")
def curve() -> Answer:
    """What a trial of 64 segments finds; most of its losses are of arms that hardly anybody gets any more."""
    over = to_the_end(simulation(load_spec(_CURVE, []), 0))
    return over.schedule.answer(over.step)


def test_every_decided_loss_of_64_segments_is_drawn(at: Services, new_page: Open, curve: Answer) -> None:
    page = new_page()
    found = httpx.get(f"{at.server}/experiments/shop/answer").json() | {"found": msgspec.to_builtins(curve)}
    page.route("**/experiments/shop/answer", lambda route: route.fulfill(json=found))
    show(page, at, "shop")
    drawn = page.locator("#findings .finding", has_text="Effects against the control, by group")
    groups = [one for one in curve.effects if one.group is not None]
    decided = [one for one in groups if one.is_decided]
    losses = [one for one in decided if one.reason == "decided worse"]
    assert (len(groups), len(decided) > len(losses) > 7) == (64, True)
    assert drawn.locator("> svg rect.mark").count() == len(decided)
    said = str(drawn.locator("> svg").get_attribute("aria-label"))
    assert [one.group for one in losses if f"{one.group} · treated" not in said] == []
    assert said.count("decided worse") == len(losses)
    # What is not drawn at once is counted, none of it is decided, and a click shows it.
    more = drawn.get_by_text(re.compile(r"^\d+ more of 64, none of them decided$"))
    more.click()
    drawn.locator("details svg").wait_for()
    assert drawn.locator("svg .mark, svg .unknown").count() == 64
    # The words say what the drawing does.
    said = text_of(page, "findings")
    assert f"{len(losses)} worse" in said
    assert "Its horizon ended it" in said


def test_before_the_first_report_nothing_is_ahead(at: Services, new_page: Open) -> None:
    page = new_page()
    show(page, at, "begun")
    assert "none is ahead" in text_of(page, "policy")
    assert "ahead in" not in text_of(page, "policy")
    assert page.locator("#map text.tick").all_text_contents() == ["18", "99"]
    assert "Nothing is known yet: the first result comes after" in text_of(page, "answer")

"""``privateer policy`` of a phased experiment: there are no bins to draw."""

import pytest

from privateer.wire.publication import decode_publication
from privateer_lab.cli import main
from privateer_server.api import views
from privateer_server.rounds import first_round
from tests.support.phased import phased_spec


def test_a_phase_is_shown_as_what_it_plays_and_asks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = phased_spec({"asking.reserve": 2.0})
    first = first_round(spec, bytes([9]) * 32)
    assert decode_publication(first.publication).round.batch == 2
    answers = {True: views.policy(spec, first.publication), False: {"spec": spec.model_dump(mode="json")}}
    monkeypatch.setattr("privateer_lab.commands.experiments.ask", lambda _, url: answers[url.endswith("/policy")])
    with pytest.raises(SystemExit) as stop:
        main(["policy", "test"])
    shown = [[cell.strip() for cell in line.split("│")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    assert stop.value.code in (None, 0)
    assert [r for r in shown if r][:3] == [["actions left", "30"], ["people wanted", "2"], ["people asked", "4"]]
    for action, plays in zip(first.policy.support, first.policy.plays, strict=True):
        assert [str(action), str(plays)] in shown

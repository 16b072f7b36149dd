"""The answers that the page shows are those that the program gives."""

import re
from pathlib import Path

import pytest

from privateer_core.answer.conclusion import PublishedAnswer
from privateer_lab.cli.input_files import load_spec
from privateer_lab.simulation.simulation import Simulation
from privateer_lab.terminal import print_conclusion
from privateer_server.conclusions.conclusion import conclude

ROOT = Path(__file__).parents[2]
SHOWN = re.findall(r"```text\n(.*?)```", (ROOT / "docs" / "answer.md").read_text(), re.DOTALL)


@pytest.mark.parametrize(
    ("place", "name", "settings"),
    [(0, "peaks-shuffle", ["experiment.horizon=9500", "experiment.gain_share=0.15"]), (1, "revenue", [])],
)
def test_the_page_shows_what_is_printed(
    place: int, name: str, settings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run = Simulation(load_spec(ROOT / "examples" / f"{name}.toml", settings), 1)
    while run.step.batch:
        run.close_round()
    answer, version = run.schedule.answer(run.step), run.step.policy.version
    found = conclude(run.schedule, run.step, answer)
    began, algorithm = "2026-11-20T10:00:00+00:00", run.spec.algorithm.name
    print_conclusion(PublishedAnswer(name, version, "finished", algorithm, began, found, answer))
    assert capsys.readouterr().out == SHOWN[place]

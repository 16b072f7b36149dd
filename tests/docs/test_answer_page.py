"""The answers that the page shows are those that the program gives, whose last lines it leaves out."""

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
    ("place", "name", "settings", "left_out"),
    [
        (
            0,
            "peaks-shuffle",
            ["experiment.horizon=9500", "experiment.gain_share=0.15"],
            r"what choosing by context gains, [^\n]* measured [^\n]* \+0\.4119 \(\+0\.307 to \+0\.5168\)\n"
            r".* 0\.8957 .* 0\.4624 .* \+0\.4333 .* \+93\.7% .* \+0\.3811 to \+0\.4855 .*"
            r"\nIt rests on 9,425 of at most 9,500 people in 9 rounds; [^\n]*\n[^\n]*"
            r"\nIt cost each person epsilon 1 and delta 1e-06 against the server, [^\n]*"
            r"\nFigures are mean rewards, from 0 to 1, and more counts as better\.\n",
        ),
        (
            1,
            "revenue",
            [],
            r"what a person loses by following it, .* who gets .* bundle .* 8e-06 .*"
            r"\nIt rests on 100,000 of at most 100,000 people in 7 rounds; [^\n]*\nIt cost each person epsilon 1 [^\n]*"
            r"\nFigures are mean rewards, from 0 to 200, and more counts as better\.\n",
        ),
    ],
)
def test_the_page_shows_what_is_printed(
    place: int, name: str, settings: list[str], left_out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Simulation(load_spec(ROOT / "examples" / f"{name}.toml", settings), 1)
    while run.step.batch:
        run.close_round()
    answer, version = run.schedule.answer(run.step), run.step.policy.version
    found = conclude(run.schedule, run.step, answer)
    began, algorithm = "2026-11-20T10:00:00+00:00", run.spec.algorithm.name
    print_conclusion(PublishedAnswer(name, version, "finished", algorithm, began, found, answer))
    said = capsys.readouterr().out
    assert said.startswith(SHOWN[place])
    assert re.fullmatch(left_out, said.removeprefix(SHOWN[place]), re.DOTALL)

"""The answers on the page are the program's, without the last lines."""

import re
from pathlib import Path

import pytest

import privateer_lab as lab
from privateer_core.answer.conclusion import PublishedAnswer
from privateer_lab.cli.input_files import load_spec
from privateer_lab.render.documents import write_conclusion, write_finished
from privateer_lab.render.terminal import print_document
from privateer_lab.simulation.simulation import Simulation
from privateer_server.conclusions.conclusion import conclude

ROOT = Path(__file__).parents[2]
SHOWN = re.findall(r"```text\n(.*?)```", (ROOT / "docs" / "answer.md").read_text(), re.DOTALL)


GAIN = """\
what choosing by context gains, in mean reward: measured with people who got one or the other; above \
any option by chance +0.3871 (+0.2838 to +0.4904)
┏━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━┓
┃ by context ┃ middle for everybody ┃ gain    ┃ relative ┃ interval           ┃
┡━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━┩
│     0.9094 │               0.4762 │ +0.4332 │ +91.0%   │ +0.3793 to +0.4872 │
└────────────┴──────────────────────┴─────────┴──────────┴────────────────────┘
It rests on 9,425 people in 9 rounds; the experiment is finished, begun 2026-11-20. Of 9,500 people planned: \
9,425 counted in closed rounds; 75 out of reach of rounds.
Shares of people are counted.
It cost each person epsilon 1 and delta 1e-06 against the server, for all that they report: the server sees \
a permuted batch of randomized reports.
Rewards are from 0 to 1, and more counts as better; effects are differences of means.
"""
LOSSES = """\
what a person loses by following it, in mean reward; at most while intervals hold
┏━━━━━━━━━━┳━━━━━━━━━━━━━━━━━┳━━━━━━━━━┓
┃ who gets ┃ loses, expected ┃ at most ┃
┡━━━━━━━━━━╇━━━━━━━━━━━━━━━━━╇━━━━━━━━━┩
│ bundle   │               0 │       0 │
└──────────┴─────────────────┴─────────┘
It rests on 100,000 people in 7 rounds; the experiment is finished, begun 2026-11-20. Of 100,000 people planned: \
100,000 counted in closed rounds.
It cost each person epsilon 1 against readers of what is published, for all that they report: \
the server sees records, as their curator, and adds noise to what it releases.
Rewards are from 0 to 200, and more counts as better; effects are differences of means.
"""
"""What each answer says below, which the page leaves out."""


@pytest.mark.parametrize(
    ("place", "name", "settings", "below"),
    [
        (0, "peaks-shuffle", ["experiment.horizon=9500", "experiment.evaluation_fraction=0.15"], GAIN),
        (1, "revenue", [], LOSSES),
    ],
)
def test_the_page_shows_the_printed_answers(
    place: int, name: str, settings: list[str], below: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Simulation(load_spec(ROOT / "examples" / f"{name}.toml", settings), 1)
    while run.step.batch_size:
        run.close_round()
    answer, version = run.schedule.answer(run.step), run.step.policy.version
    conclusion = conclude(run.schedule, run.step, answer)
    began, algorithm = "2026-11-20T10:00:00+00:00", run.spec.algorithm.name
    print_document(
        write_conclusion(
            PublishedAnswer(name, version, "finished", algorithm, began, run.account(), conclusion, answer)
        )
    )
    assert capsys.readouterr().out == SHOWN[place] + below


def test_the_page_shows_the_printed_answer_of_a_test_with_segments(capsys: pytest.CaptureFixture[str]) -> None:
    """Nine in ten people are where the option does harm."""
    cells = {
        ("NL", "a"): (5400, 1188),
        ("NL", "b"): (5400, 622),
        ("DE", "a"): (300, 24),
        ("DE", "b"): (300, 84),
        ("FR", "a"): (300, 36),
        ("FR", "b"): (300, 72),
    }
    rows = [
        (country, arm, float(place < yes)) for (country, arm), (people, yes) in cells.items() for place in range(people)
    ]
    country, arm, reward = zip(*rows, strict=True)
    analysis = lab.analyze({"country": country, "arm": arm, "reward": reward}, segments=["country"])
    print_document(write_finished(analysis.result.conclusion, analysis.answer, analysis.rests))
    printed = capsys.readouterr().out
    assert printed.startswith(SHOWN[2])
    assert "Shares of people are counted.\n" in printed  # nothing is said of others, who are nobody

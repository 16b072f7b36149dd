"""Answers as a server publishes them, and their parts as JSON."""

from typing import Any, Final

import msgspec

from privateer_core.answer import Answer
from privateer_core.answer.conclusion import Conclusion, Headline, PrivacyCost, PublishedAnswer, RewardUnit
from privateer_core.answer.people import HeldReports, People


def fact(answer: dict[str, Any], name: str) -> Any:
    """The value of a fact."""
    facts = [fact for part in answer["parts"] if part["kind"] == "figures" for fact in part["facts"]]
    (value,) = (entry["value"] for entry in facts if entry["name"] == name)
    return value


SENTENCE: Final = "Give everybody b: it is decided."
CONCLUSION: Final = Conclusion(
    headline=Headline("one arm", SENTENCE, "decided", "b", "a", 0.2, 0.1, 0.3),
    people=2000,
    rounds=2,
    reward=RewardUnit(
        0.0, 1.0, "Rewards are from 0 to 1, and more counts as better; effects are differences of means."
    ),
    privacy=PrivacyCost("local", 1.0, 0.0, "It cost each person epsilon 1."),
)
PEOPLE: Final = People(20_000, 2000, HeldReports(500, 0, 500), not_asked=17_500)


def published(answer: Answer, experiment: str = "test", **conclusion: Any) -> PublishedAnswer:
    """Return the published answer with a conclusion of which some fields are these."""
    concluded = msgspec.structs.replace(CONCLUSION, warnings=answer.warnings, **conclusion)
    return PublishedAnswer(experiment, 3, "open", "partition", "2026-11-20T10:00:00+00:00", PEOPLE, concluded, answer)


def document(answer: Answer, experiment: str = "test", **conclusion: Any) -> dict[str, Any]:
    """Return the same as JSON brings it."""
    answer_: dict[str, Any] = msgspec.to_builtins(published(answer, experiment, **conclusion))
    return answer_

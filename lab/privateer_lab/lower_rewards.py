"""Rewards of which less is better: turned for a learner, of which more is better, and told in their own unit."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from privateer_core.answer import Answer
from privateer_core.answer.estimates import Effect, bounds_in_words
from privateer_core.answer.parts import AnswerPart, Figures
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.notebook.results import Found
from privateer_lab.tables.rewards import LOWER_BY
from privateer_server.conclusions.by_effects import effects_headline
from privateer_server.conclusions.wording import LearnedAnswer, signed

_SHOWN: Final = 5
"""Options of which a sentence tells."""


@dataclass(frozen=True)
class LowerRewards:
    """What is called a reward, and whether it is yes or no: of these 1 - r is learned from, of numbers -r."""

    name: str
    is_yes_or_no: bool

    def renamed(self, answer: Answer, spec: ArmsSpec) -> Answer:
        """Return an answer that names bounds of the rewards as they are."""
        if self.is_yes_or_no:
            return answer
        effects, parts = map(_turn_bounds, answer.effects), (_turn_facts(part, spec) for part in answer.parts)
        return msgspec.structs.replace(answer, effects=tuple(effects), parts=tuple(parts))

    def sentence(self, found: Found) -> str:
        """Say how much lower than the control's the rewards are."""
        conclusion = found.conclusion
        said = LOWER_BY.format(reward=self.name, figure="an effect")
        if conclusion.baseline is None:
            return said
        mean = float(self.is_yes_or_no) - conclusion.baseline.value
        known = [one for one in conclusion.effects if one.group is None and one.value is not None]
        shown = [f"{one.option} {_changed(one.value, mean)}" for one in known[:_SHOWN] if one.value]
        return f"{said} {conclusion.control}: mean {self.name} of about {mean:.3g}; {'; '.join(shown)}."

    def without_means(self, found: Found, spec: ArmsSpec, bounds: tuple[float, float]) -> Found:
        """Return what was found without mean rewards, which nobody reported; `sentence` tells the right ones."""
        conclusion = found.conclusion
        headline = effects_headline(LearnedAnswer(spec, found.said), conclusion.rules, None)
        headline = msgspec.structs.replace(headline, sentence=self._own_figures(headline.sentence, found.said.effects))
        low, high = bounds
        unit = msgspec.structs.replace(
            conclusion.reward, low=low, high=high, sentence=f"Effects say how much lower {self.name} is."
        )
        turned = msgspec.structs.replace(conclusion, headline=headline, baseline=None, no_relative=None, reward=unit)
        return replace(found, conclusion=turned)

    def _own_figures(self, sentence: str, effects: Sequence[Effect]) -> str:
        """Return a headline that says by how much the outcome itself changes, which is down where that is better."""
        for one in effects:
            if one.value is None or one.group is not None:
                continue
            lower, itself = signed(one.value, one.low, one.high), signed(*_negated(one))
            sentence = sentence.replace(f"changes rewards by {lower}", f"changes {self.name} by {itself}")
            sentence = sentence.replace(f": {lower} against", f": {self.name} changes by {itself} against")
        return sentence


def _negated(one: Effect) -> tuple[float, float | None, float | None]:
    """Return the change of the outcome itself, with its interval."""
    low, high = (None if end is None else -end for end in (one.high, one.low))
    return -(one.value or 0.0), low, high


def _changed(lower: float, mean: float) -> str:
    """Say by how much something is lower or higher than a mean."""
    share = f" ({abs(lower) / mean:.0%})" if mean > 0 else ""
    return f"{abs(lower):.3g} {'lower' if lower > 0 else 'higher'}{share}"


def _turn_bounds(effect: Effect) -> Effect:
    if effect.bounds is None:
        return effect
    low, high = effect.bounds
    remark = effect.remark.replace(bounds_in_words(low, high), bounds_in_words(-high, -low))
    return msgspec.structs.replace(effect, bounds=(-high, -low), remark=remark)


def _turn_facts(part: AnswerPart, spec: ArmsSpec) -> AnswerPart:
    """Return facts about bounds with the bounds as they are."""
    if not isinstance(part, Figures):
        return part
    ends = (spec.reward.low, spec.reward.high)
    names = {f"rewards of {end:g}, at most": f"rewards of {-end:z.6g}, at most" for end in ends}
    facts = tuple(msgspec.structs.replace(fact, name=names.get(fact.name, fact.name)) for fact in part.facts)
    return msgspec.structs.replace(part, facts=facts)

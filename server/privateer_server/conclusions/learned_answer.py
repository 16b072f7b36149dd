"""What was found of an experiment, with what sentences need of its spec."""

from dataclasses import dataclass

from privateer_core.answer import Answer
from privateer_core.spec.spec import Spec


@dataclass(frozen=True)
class LearnedAnswer:
    """An answer and the spec of its experiment."""

    spec: Spec
    answer: Answer

    @property
    def rates_options(self) -> bool:
        """Whether estimates are mean rewards of the options, one by one."""
        estimates = self.answer.estimates
        names = {one.name for one in estimates}
        return bool(estimates) and not self.answer.effects and names <= set(self.spec.options)

    def said(self, sentence: str) -> str:
        """Return a sentence that does not begin with a name; one that may change says so."""
        return sentence[:1].upper() + sentence[1:] if self.answer.is_over else f"So far: {sentence}"

"""Claims of papers on slopes, in verdicts, sentences, warnings and table lines beside the slopes of runs."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from privateer_papers.growth import Slope
from privateer_papers.reproduction import Rows, TableLine


@dataclass(frozen=True)
class SlopeClaims:
    """Slopes that a paper claims, with templates for verdict, sentence, warnings and table lines.

    Templates may name the ``claim``, its ``name``, and our slope as ``fit``.
    """

    claims: Mapping[Any, Any]  # by name
    fit: Callable[[Rows], Mapping[Any, Mapping[str, Slope | None]]]  # slopes by name and player; None: it has none
    players: tuple[str, str]  # ours and the paper's
    summary: str  # a sentence on the numbers ``ours`` and ``theirs`` of slopes above the paper's, of ``total``
    warning: str
    label: str  # of a table line
    published: str = "{fit.promised:.2f}"  # the paper's slope in a table line
    heading: str = ""
    paragraph: str = ""  # a line of the verdict, with the ``comparisons`` of all players
    comparison: str = ""  # of the slope ``fit`` of a ``player``
    separator: str = "; "
    # what is said after a warning, by the name of its claim
    notes: Mapping[Any, Callable[[Rows], Iterator[str]]] = field(default_factory=dict)

    def verdict(self, rows: Rows) -> str:
        """Compare the slopes of each claim with the paper's, under the heading."""
        texts = [self.heading]
        for name, fits in self.fit(rows).items():
            parts = (self.comparison.format(player=player, fit=fit) for player, fit in fits.items())
            texts.append(self._format(self.paragraph, name, fits, comparisons=self.separator.join(parts)))
        return "\n".join(texts)

    def sentence(self, rows: Rows) -> str:
        """Say how many slopes are above the paper's by more than two standard errors."""
        all_fits = self.fit(rows).values()
        n_own, n_theirs = (
            sum(fit is not None and fit.is_above for fit in (fits[player] for fits in all_fits))
            for player in self.players
        )
        return self.summary.format(total=len(self.claims), ours=n_own, theirs=n_theirs)

    def warnings(self, rows: Rows) -> list[str]:
        """Return a warning for each slope of ours that is above the paper's by more than two standard errors."""
        return [
            " ".join([self._format(self.warning, name, fits), *(self.notes[name](rows) if name in self.notes else ())])
            for name, fits in self.fit(rows).items()
            if (fit := fits[self.players[0]]) and fit.is_above
        ]

    def compare(self, rows: Rows) -> list[TableLine]:
        """Return a table line for each claim, in order: the slope of the paper, of its algorithm and of ours."""
        all_fits, lines = self.fit(rows), []
        for name in self.claims:
            fits = all_fits[name]
            words = (self._format(text, name, fits) for text in (self.label, self.published))
            lines.append(TableLine(*words, *(str(fits[player] or "") for player in reversed(self.players))))
        return lines

    def _format(self, text: str, name: Any, fits: Mapping[str, Slope | None], **facts: str) -> str:
        return text.format(name=name, claim=self.claims[name], fit=fits[self.players[0]], **facts)

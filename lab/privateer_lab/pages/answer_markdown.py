"""The answer of an experiment as Markdown, for people who were not there."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from privateer_core.answer.conclusion import PublishedAnswer
from privateer_lab.answer_tables import Titled, estimates_of, tables_of, tables_of_shapes
from privateer_lab.answer_words import sentences
from privateer_lab.conclusion_tables import notes_of, tables_of_conclusion
from privateer_lab.pages.markdown_text import inert, table_of_rows

_CLAIM: Final = ("against", "about", "epsilon", "delta")
_NOTHING: Final = {"epsilon": "nothing is claimed", "delta": None}


def markdown(published: PublishedAnswer, claims: Sequence[Mapping[str, Any]] = ()) -> str:
    """Write an answer, the headline first; with the claims of its certificate, all that its algorithm reports."""
    conclusion, found = published.conclusion, published.found
    parts = [f"# {inert(published.experiment)}", f"**{inert(conclusion.headline.sentence)}**"]
    if conclusion.warnings:
        parts.append("\n".join(f"- warning: {inert(one)}" for one in conclusion.warnings))
    if claims:
        parts += [inert(one) for one in [*sentences(conclusion, found)][1:]]
        estimates = [] if found.effects else [Titled("estimates", estimates_of(found.estimates))]
        tables = [*estimates, *tables_of(found)]
    else:
        tables = [*tables_of_conclusion(conclusion), *tables_of_shapes(found)]
    for title, rows in tables:
        parts += [f"## {inert(title[:1].upper() + title[1:])}", table_of_rows(rows)]
    if claims:
        promised = [{key: one[key] for key in _CLAIM} | (_NOTHING if one["epsilon"] is None else {}) for one in claims]
        parts += ["## Privacy", table_of_rows(promised)]
    parts.append("\n".join(f"- {inert(note)}" for note in notes_of(published)))
    return "\n\n".join(parts) + "\n"

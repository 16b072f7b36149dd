"""The answer of an experiment as Markdown and as one HTML file, for people who were not there."""

from privateer_core.answer.conclusion import PublishedAnswer
from privateer_lab.answer_tables import tables_of_shapes
from privateer_lab.conclusion_tables import notes_of, tables_of_conclusion
from privateer_lab.pages.markdown_text import inert, table_of_rows
from privateer_lab.pages.templates import page, written
from privateer_lab.shape_pictures import pictures_of_shapes


def markdown(published: PublishedAnswer) -> str:
    """Write an answer as Markdown: the headline first."""
    conclusion = published.conclusion
    parts = [f"# {inert(published.experiment)}", f"**{inert(conclusion.headline.sentence)}**"]
    if conclusion.warnings:
        parts.append("\n".join(f"- warning: {inert(one)}" for one in conclusion.warnings))
    for title, rows in (*tables_of_conclusion(conclusion), *tables_of_shapes(published.found)):
        parts += [f"## {inert(title[:1].upper() + title[1:])}", table_of_rows(rows)]
    parts.append("\n".join(f"- {inert(note)}" for note in notes_of(published)))
    return "\n\n".join(parts) + "\n"


def html(published: PublishedAnswer) -> str:
    """Write an answer as a page that fetches nothing."""
    tables = [written(one) for one in tables_of_conclusion(published.conclusion)]
    shapes = pictures_of_shapes(published.found)
    return page("answer.html", published=published, tables=tables, shapes=shapes, notes=notes_of(published))

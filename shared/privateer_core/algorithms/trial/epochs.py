"""Looks at a trial: when they come."""

from privateer_core.algorithms.trial.sections import GROWTH


def looks(people: int, least: int, most: int) -> tuple[int, ...]:
    """Return the people at every look, the last at all ``people``: each look has 1.5 times those of the one before.

    Parameters
    ----------
    people
        All people.
    least
        Fewest people between two looks, and before the first.
    most
        Most looks.
    """
    found = [people]
    while len(found) < most:
        before = round(found[0] / GROWTH)
        if before < least or found[0] - before < least:
            break
        found.insert(0, before)
    return tuple(found)

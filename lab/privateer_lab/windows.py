"""Conversion windows in simulations: how many people choose between somebody's choice and the report on it."""

from typing import Final

from privateer_core.arms_spec import ArmsSpec
from privateer_core.spec import Spec
from privateer_lab.delays import Delay
from privateer_lab.environments import population_of

DAYS: Final = 28
"""Within so many days all people are assumed to come, where nobody says how many do in a day."""
_DAY: Final = 86_400


def waiting_of(spec: Spec) -> float:
    """Return how many people choose in the spec's conversion window; 0 without one, or where none is simulated.

    The population's ``delay`` is what it says, whatever the window.
    """
    section = population_of(spec)
    if section is None or section.delay is not None or not section.late or _return(spec):
        return 0.0
    return spec.experiment.conversion_window / _DAY * (section.arrivals or spec.experiment.horizon / DAYS)


def delay_of(spec: Spec) -> Delay | None:
    """Return the delay of simulated reports, the population's or that of the window; None: they come at once."""
    section = population_of(spec)
    if section is not None and section.delay is not None:
        return section.delay
    waiting = waiting_of(spec)
    return Delay(law="fixed", mean=waiting) if waiting else None


def assumed(spec: Spec) -> list[str]:
    """Say what a simulation assumes about a conversion window; nothing without one."""
    section, window = population_of(spec), spec.experiment.conversion_window
    if section is None or not window:
        return []
    days = window / _DAY
    said = f"Devices report {days:,.3g} {'day' if days == 1 else 'days'} after choosing (experiment.conversion_window)."
    if section.delay is not None:
        return [f"{said} Simulated reports come as late as population.delay says instead."]
    if not section.late:
        return [f"{said} A round waits for its people, so that costs time and no regret; it is not simulated."]
    if _return(spec):
        return [f"{said} That is not simulated where people come back: reports come at once, and regret looks lower."]
    waiting = f"{waiting_of(spec):,.0f}"
    if section.arrivals:
        return [f"{said} At population.arrivals = {section.arrivals:g} people a day, {waiting} choose in between."]
    return [
        f"{said} Nobody can know how many people choose in between: {waiting} are assumed, as if all "
        f"{spec.experiment.horizon:,} came within {DAYS} days. Set population.arrivals to the people you expect a day."
    ]


def _return(spec: Spec) -> bool:
    return isinstance(spec, ArmsSpec) and spec.experiment.reports_per_person > 1

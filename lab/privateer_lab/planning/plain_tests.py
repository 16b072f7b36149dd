"""Plain A/B tests: the yardstick for what else people's reports could tell."""

from collections.abc import Sequence
from typing import Any, Final, cast

from privateer_core.algorithms import parse_spec
from privateer_core.answer.facts import Table
from privateer_core.errors import SpecError
from privateer_core.privacy.trust import TRUST
from privateer_core.spec.arms import ARMS_FEW, ARMS_MIN
from privateer_core.spec.spec import Spec, example_promises
from privateer_lab.planning.other_algorithms import plans_for_effects, with_effects
from privateer_lab.planning.plans import Variant, foreseen, variants

SEGMENT: Final = "segment"
LEAST: Final = "least effect"
CORRECTED: Final = "least effect decided, at worst"
"""The columns of segments, of the smallest effect that is found, and of that which the correction leaves."""
PEOPLE: Final = 20_000
_EACH: Final = 20
"""People of each arm at the first look of a plain test, at least."""
LOOKS: Final = 50
"""A first look has at least this part of the people, so that plans of all sizes have as many looks."""
_DELTA: Final = 1e-6


def plain_test(
    *,
    arms: int = 2,
    rate: float = 0.5,
    power: float = 0.8,
    level: float = 0.05,
    looks: int = 8,
    delta: float = _DELTA,
    people: int = PEOPLE,
    **unknown: Any,
) -> Spec:
    """Return the spec of a plain test, of the first algorithm that plans for an effect."""
    if unknown:
        remedy = "give a spec, or arms, rate, power, level, looks, delta"
        raise SpecError("is no part of a plain test", field=next(iter(unknown)), remedy=remedy)
    rows = ((one, TRUST[one["model"]]) for one in example_promises())
    promise = next(one for one, row in rows if row.delta_least and not row.batched)
    if not (isinstance(arms, int) and ARMS_MIN <= arms <= ARMS_FEW):
        raise SpecError(f"must be {ARMS_MIN} to {ARMS_FEW}", field="arms", remedy="say how many arms there are")
    tables = {
        "experiment": {
            "name": "plain",
            "arms": [f"arm {k}" for k in range(arms)],
            "horizon": people,
            "round_size": min(people, max(_EACH * arms, people // LOOKS)),
        },
        "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
        "privacy": promise | {"delta": delta},
        "algorithm": {"name": with_effects(), "allocation": "fixed", "rate": rate}
        | {"power": power, "level": level, "looks": looks},
    }
    return parse_spec(tables)


def is_test(spec: Spec) -> bool:
    """Tell whether an experiment compares arms with a control."""
    return plans_for_effects(type(spec))


def least_effect(people: int, arms: int, rate: float, variant: Variant) -> float | None:
    """Return the smallest effect that a plain test finds under a promise, of a reward of 0 or 1; None: none at all.

    people, arms, rate: of the test; ``rate`` is the control's mean.
    variant: whose promise is kept.
    """
    try:
        test = plain_test(people=people, arms=arms, rate=rate, delta=variant.spec.privacy.delta or _DELTA)
        (under,) = variants(test, [variant.model], [variant.epsilon])
        (plan,) = foreseen([under])
        return next(iter(least_effects(plan["tables"]).values()))
    except SpecError:
        return None


def least_effects(tables: Sequence[Table], column: str = LEAST) -> dict[str, float | None]:
    """Return the least effects of a plan by segment, and by arm where arms have different ones; None: there is none."""
    table = tables[0]
    if column not in table.names:
        return {}
    place = table.names.index(column)
    is_by_arm = len({row[1] for row in table.rows}) > 1
    return {f"{row[1]}, {row[0]}" if is_by_arm else str(row[0]): cast("float | None", row[place]) for row in table.rows}

"""Concerns about promises that need more trust but give less information, because of a cap or of small batches."""

import math
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np

from privateer_core.accounting.accountant import account
from privateer_core.primitives.public_coins import UNIT, Layout
from privateer_core.privacy.cell_reports import describe_horizon_concerns
from privateer_core.privacy.information import AskedCell, measure_information
from privateer_core.privacy.terms import Terms, calibrate
from privateer_core.privacy.trust import LOCAL_EPSILON_MAX, Crowd, has_batch_noise, local_trust
from privateer_core.spec.privacy import Privacy
from privateer_core.spec.spec import Spec

_NARROWER_WIDTH_MAX: Final = 0.9
"""Largest relative width of intervals at which a larger cap is suggested."""
_WIDER_WIDTH_MIN: Final = 1.01
"""Smallest relative width that counts as wider: noise is calibrated in steps."""
_TOLERANCE: Final = 0.002
"""Tolerance of local epsilons, which are multiples of a thousandth."""
_DEVICE_LIMITS_ADVICE: Final = "devices take part only once their application sets Limits(local_epsilon={cap:g})"
_CAP_INCREASE: Final = 2.0
"""Difference of a suggested cap from the present one."""


def list_concerns(spec: Spec) -> list[str]:
    """Return concerns about valid settings: the spec's own, more trust with less information, too many features."""
    return [*spec.concerns(), *_order_concerns(spec), *describe_horizon_concerns(spec)]


def participant_information(spec: Spec, privacy: Privacy, batch: int, arm: float | None = None) -> float:
    """Return a participant's information on a cell of a round under a promise, per `information.information`.

    arm: share of the arm of the cell; None: equal shares.
    """
    return terms_information(*change_promise(spec, privacy, batch, arm), batch, arm)


def change_promise(spec: Spec, privacy: Privacy, batch: int, arm: float | None = None) -> tuple[Spec, Terms]:
    """Return the experiment with another promise, and a round's terms; arms that are batches have the share ``arm``."""
    changed_spec = spec.model_copy(update={"privacy": privacy})
    question: Any = changed_spec.typical_question()
    if arm is not None and changed_spec.groups_arms:
        layout = Layout(question.layout.seed, np.array([[round(arm * UNIT)]], np.uint32))
        question = msgspec.structs.replace(question, layout=layout)
    return changed_spec, calibrate(privacy, batch, question, changed_spec.min_reports(batch), changed_spec.reports)


def terms_information(spec: Spec, terms: Terms, batch: int, arm: float | None = None) -> float:
    """Return a participant's information on a typical cell under these terms of a round."""
    uniform_share = 1 / (len(spec.options) - len(spec.retired)) if spec.capabilities.reports_one_option else 1.0
    arm_share = uniform_share if arm is None or not spec.capabilities.reports_one_option else arm
    cell = AskedCell(spec.typical_question(), batch, arm=arm_share, in_turns=spec.has_single_arm_rounds)
    return spec.informative_share * measure_information(terms.mechanism, cell)


def is_capped(spec: Spec) -> bool:
    """Whether ``privacy.local_epsilon_max`` bounds what the spec's reports cost by themselves."""
    privacy, row = spec.privacy, spec.privacy.trust
    has_amplified_batches = row.crowd is Crowd.BATCH and not row.is_simulated and not privacy.is_as_local
    return has_amplified_batches and not has_batch_noise(privacy, spec.question)


def local_promise(privacy: Privacy) -> Privacy:
    """Return the promise with the same epsilon under the model of locally private reports."""
    return Privacy(model=local_trust().name, epsilon=privacy.epsilon)


def _order_concerns(spec: Spec) -> Iterator[str]:
    """Yield concerns about an amplified promise that a cap, or small batches, make less informative."""
    privacy = spec.privacy
    if not is_capped(spec):
        return
    rounds = {batch: change_promise(spec, privacy, batch) for batch in spec.extreme_batches}
    if rounds:
        yield from _cap_concerns(rounds)
        yield from _local_concerns(spec, {batch: terms_information(*pair, batch) for batch, pair in rounds.items()})


def _cap_concerns(rounds: dict[int, tuple[Spec, Terms]]) -> Iterator[str]:
    """Yield a concern if the cap limits the information of the largest round, in which it costs most."""
    batch = max(rounds)
    spec, terms = rounds[batch]
    privacy = spec.privacy
    cap, high = privacy.local_epsilon_max, min(LOCAL_EPSILON_MAX, privacy.local_epsilon_max + _CAP_INCREASE)
    if terms.mechanism.local_epsilon < cap - _TOLERANCE or high <= cap or terms.reports > 1 or terms.event is None:
        return
    larger_information = participant_information(spec, privacy.model_copy(update={"local_epsilon_max": high}), batch)
    width = math.sqrt(terms_information(spec, terms, batch) / larger_information)
    if width <= _NARROWER_WIDTH_MAX:
        epsilon = account(terms.event).epsilon(privacy.delta)
        yield (
            f"reports have more noise than epsilon {privacy.bound:g} asks for. privacy.local_epsilon_max = {cap:g} "
            "limits what a report tells by itself, to somebody who sees it outside of its batch, and in a round of "
            f"{batch:,} people that limit is the stricter one: the batch keeps epsilon {epsilon:.2g}. With "
            f"privacy.local_epsilon_max = {high:g} intervals are {1 - width:.0%} narrower. That costs protection where "
            f"shuffler and server work together: they learn of a person what epsilon {high:g} allows, in place of "
            f"{cap:g}. And {_DEVICE_LIMITS_ADVICE.format(cap=high)}"
        )


def _local_concerns(spec: Spec, rounds: dict[int, float]) -> Iterator[str]:
    """Yield a concern if local reports are more informative than shuffled ones, by batch size of rounds."""
    privacy, row = spec.privacy, local_trust()
    local = {batch: participant_information(spec, local_promise(privacy), batch) for batch in rounds}
    widths = {batch: math.sqrt(local[batch] / shuffled) for batch, shuffled in rounds.items()}
    wider_widths = {batch: width for batch, width in widths.items() if width > _WIDER_WIDTH_MIN}
    if not wider_widths:
        return
    ratios = " and ".join(f"{width:.2f} times as wide in a round of {batch:,}" for batch, width in wider_widths.items())
    cause = (
        "reports hide the arm, too" if privacy.has_arm_in_key else "batches are small, or privacy.local_epsilon_max is"
    )
    remedy = _shuffling_remedy(spec, max(wider_widths))
    yield (
        f"shuffling does not pay here: model '{row.name}' has narrower intervals at the same epsilon, and needs no "
        f"shuffler. With model '{privacy.model}' they are {ratios}, because {cause}. {remedy}"
    )


def _shuffling_remedy(spec: Spec, batch: int) -> str:
    """Return advice that makes shuffling pay in a round: a larger cap, else another promise."""
    privacy = spec.privacy
    target = participant_information(spec, local_promise(privacy), batch) / _WIDER_WIDTH_MIN**2
    for cap in range(math.floor(privacy.local_epsilon_max) + 1, int(LOCAL_EPSILON_MAX) + 1):
        raised = privacy.model_copy(update={"local_epsilon_max": float(cap)})
        if participant_information(spec, raised, batch) >= target:
            return f"Raise privacy.local_epsilon_max to {cap:g}; {_DEVICE_LIMITS_ADVICE.format(cap=cap)}"
    if spec.capabilities.context_decides:
        keeps = "which keeps against whoever sees arms what that model does"
        return f"Have larger rounds, or set privacy.arm_visibility = 'as-local', {keeps}"
    return f"Have larger rounds, or set privacy.model = '{local_trust().name}'"

"""Sections of a draft that depend on no column: experiment, privacy, algorithm, and a labelled population."""

import re
import textwrap
from collections.abc import Sequence
from typing import Any, Final

from privateer_core.algorithms import read_spec
from privateer_core.errors import SpecError
from privateer_core.privacy.trust import TRUST, Crowd, default_local_epsilon, local_trust
from privateer_core.spec.privacy import Privacy
from privateer_core.spec.spec import Spec, example_promises
from privateer_lab.drafting.feature_drafts import CONFIRM_REMARK, rounded
from privateer_lab.drafting.toml_values import to_toml
from privateer_lab.planning.local_caps import choose_cap, guess_max
from privateer_lab.planning.plans import check_epsilons, check_trust_models

_ROUND_SIZE: Final = 1000
"""Participants of a usual first round."""
_N_ROUNDS: Final = 30
"""Number of rounds where participants are too few to be shuffled, and a usual round would be a large part of them."""
_EVALUATION_FRACTION: Final = 0.05
_MIN_GAIN_PARTICIPANTS: Final = 1000
"""Fewest participants who measure a gain: fewer make no shuffled batch."""
_MAX_FAILURES: Final = 0.1
"""Largest delta times participants: the expected number of broken promises."""
_MIN_CROWD: Final = 5000
"""Fewest participants for a shuffler: at the same epsilon a shuffled report is many times as informative."""

_CAP_LINES: Final = re.compile(r"(# .*\n)+local_epsilon_max = .*\n")
_COMMENT_WIDTH: Final = 120


def format_arms(arms: Sequence[str], *, from_data: bool = False) -> str:
    """Format the line of arms, whose names become public."""
    return f"arms = {to_toml(list(arms))}{CONFIRM_REMARK if from_data else ''}"


def format_experiment_section(name: str, arms_line: str, rows: int, model: str, *, measures: bool) -> list[str]:
    """Format the experiment's section: small first rounds if its model is batched, a last one that ``measures``."""
    # The spec is public and the exact number of rows is private, so that the horizon has two digits.
    unit = int(10 ** max(0, len(str(rows)) - 2))
    horizon, has_batch = max(1, rows // unit * unit), TRUST[model].crowd is Crowd.BATCH
    limit, size = (_MIN_CROWD, horizon // _N_ROUNDS) if measures else (_ROUND_SIZE, horizon)
    remark = "of the people, the last ones, measure what choosing by context gains"
    fraction = f"evaluation_fraction = {_EVALUATION_FRACTION:g}  # {remark}"
    return [
        "[experiment]",
        f"name = {to_toml(name)}",
        arms_line,
        f"horizon = {horizon}  # people who take part",
        *([f"round_size = {max(1, size)}"] if rows < limit and not (measures and has_batch) else []),
        *([fraction] if measures and _EVALUATION_FRACTION * rows >= _MIN_GAIN_PARTICIPANTS else []),
        "",
    ]


def with_filled_rounds(text: str) -> str:
    """Reduce a draft's horizon to what its rounds fill: a rest below the smallest round would not be invited."""
    while n_unreached := (spec := read_spec(text)).count_unreachable(spec.cohorts[0], 0):
        horizon = spec.experiment.horizon
        text = text.replace(f"horizon = {horizon} ", f"horizon = {horizon - n_unreached} ", 1)
    return text


def with_needed_cap(text: str) -> str:
    """Write the cap on the epsilon of a report by itself that the draft's batches need, if it exceeds the default."""
    text = _CAP_LINES.sub("", text)
    spec = read_spec(text)
    if (cap := choose_cap(spec)) is None:
        return text
    default, chosen = spec.privacy.local_epsilon_max, cap.local_epsilon_max
    comment = (
        f"A report by itself may cost {chosen:g} and not {default:g}, the default: rounds of {cap.people_per_round:,} "
        f"hide it, and equal intervals take {1 - cap.people_ratio:.0%} fewer people. If shuffler and server collude, "
        f"they name a person's record, of two equally likely ones, with probability {guess_max(chosen):.1%} at most; "
        f"with {default:g} it is {guess_max(default):.1%}. Without the next line it is {default:g}."
    )
    closing = f"{format_comment(comment)}local_epsilon_max = {to_toml(chosen)}"
    return text.replace("\n\n[algorithm]\n", f"\n{closing}\n\n[algorithm]\n", 1)


def format_comment(text: str) -> str:
    """Format a paragraph as lines of a comment; empty without text."""
    return "".join(f"# {line}\n" for line in textwrap.wrap(text, _COMMENT_WIDTH - 2))


def explain_cap(spec: Spec) -> list[str]:
    """Say which consent of applications a draft's cap needs, if it exceeds the default."""
    chosen = spec.privacy.local_epsilon_max
    if chosen <= default_local_epsilon(spec.privacy.model, spec.privacy.bound):
        return []
    return [
        f"privacy.local_epsilon_max is {chosen:g}: a comment says what that saves, and what it means if shuffler and "
        f"server collude. Devices take part only once their application sets Limits(local_epsilon={chosen:g})."
    ]


def choose_promise(n_participants: int, model: str | None = None, epsilon: float | None = None) -> dict[str, Any]:
    """Choose a privacy promise for a number of participants, by default at epsilon 1."""
    wanted_crowd = Crowd.BATCH if n_participants >= _MIN_CROWD else Crowd.NOBODY
    required = None if model is None else check_trust_models(model, tuple(TRUST), "--model")[0]
    promise = next(
        example
        for example in example_promises().values()
        if (TRUST[example["model"]].crowd is wanted_crowd if required is None else example["model"] == required)
    )
    if "epsilon" in promise:
        promise["epsilon"] = check_epsilons(1.0 if epsilon is None else epsilon, "--epsilon")[0]
    if "delta" in promise:
        promise["delta"] = min(promise["delta"], rounded(_MAX_FAILURES / n_participants))
    return promise


def explain_promise(promise: dict[str, Any], n_participants: int, *, is_requested: bool) -> list[str]:
    """Describe a promise: whom people trust, and in which crowd they hide; refuse a crowd that is too small."""
    model, local_model = promise["model"], local_trust().name
    if TRUST[model].crowd is not Crowd.BATCH:
        trust = f"privacy.model is {to_toml(model)}: people trust nobody but their own device."
        return [] if is_requested else [f"{trust} Fewer than {_MIN_CROWD:,} are no crowd to hide in."]
    min_batch = Privacy(**promise).min_batch
    crowd = f"a report hides in a batch of at least {min_batch:,} (privacy.min_batch), and fewer are never opened"
    if n_participants < min_batch:
        remedy = f"take {local_model}, which needs no crowd, or more people"
        raise SpecError(f"{n_participants:,} people are too few: {crowd}", field="--model", remedy=remedy)
    count = n_participants // min_batch
    batches = f"{n_participants:,} people fill {f'{count:,} batches' if count > 1 else 'one batch'} at most"
    return [
        f"privacy.model is {to_toml(model)}: {crowd}; {batches}. The promise holds if somebody runs the shuffler whom "
        "the server does not control, and nine in ten reports of a batch are honest; `privateer account experiment` "
        f"says what holds if not. To have people trust nobody: model = {to_toml(local_model)}, without delta."
    ]


def format_closing_sections(promise: dict[str, Any], fitting: str) -> list[str]:
    """Format the sections that depend on no data: the privacy promise and the algorithm."""
    return [
        "[privacy]  # what you promise to each person: `privateer plan` shows what it costs in rewards",
        *(f"{key} = {to_toml(value)}" for key, value in promise.items()),
        "",
        format_algorithm_section(fitting),
    ]


def format_algorithm_section(name: str) -> str:
    """Format the section that names an algorithm."""
    return f"[algorithm]\nname = {to_toml(name)}"


def format_labelled_population(path: str, label: str, classes: list[str], arms: Sequence[str]) -> list[str]:
    """Format the population of a file's rows, whose class in the column ``label`` is the right arm."""
    lines = ["", "[population]  # simulated people: the rows, whose class is the right arm", 'name = "csv"']
    lines += [f"path = {to_toml(path)}", f"label = {to_toml(label)}", 'ignore = ["*"]']
    return lines + ([f"classes = {to_toml(classes)}"] if list(arms) != classes else [])

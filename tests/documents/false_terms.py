"""Publications as servers may change them: terms that a device refuses, and terms that it accepts."""

from typing import Any, TypeAlias

import msgspec
import numpy as np

from privateer_core.spec.spec import Spec
from tests.documents import gains
from tests.documents.gains import LIMITS

FalseTerms: TypeAlias = tuple[str, dict[str, Any], dict[str, Any]]
"""What is changed in words, the changes by field, and the limits of the device."""


def false_terms(spec: Spec, body: bytes) -> list[FalseTerms]:
    """Return what a server may change in a publication, each with the limits of the device that gets it."""
    policy = msgspec.msgpack.decode(msgspec.msgpack.decode(body)[2])
    mechanism = policy["terms"]["mechanism"]
    at, lies = "policy.terms.mechanism", [("as it is", dict[str, Any](), LIMITS)]
    lies.append(("a server that sees records, which nobody allowed", {}, LIMITS | {"allow_central": False}))
    lies.append(("a device that allows less", {}, LIMITS | {"epsilon": 0.5}))
    for field in ("standard_deviation", "scale"):
        if noise := mechanism.get(field):
            lies.append((f"too little {field}", {f"{at}.{field}": 0.99 * noise}, LIMITS))
            lies.append((f"a little more {field}", {f"{at}.{field}": 1.01 * noise}, LIMITS))
    if "epsilon" in mechanism:
        # What several messages share leaves room.
        larger_epsilon = mechanism["epsilon"] + (0.02 if mechanism.get("repeats", 1) == 1 else 0.3)
        lies.append(("a little more local epsilon than the promise allows", {f"{at}.epsilon": larger_epsilon}, LIMITS))
    if spec.reward.kind == "numeric" and "learned" in policy:
        lies.append(("other levels", {f"{at}.levels": 3 if mechanism.get("levels") != 3 else 5}, LIMITS))
        lies.append(("as of no or yes", {f"{at}.type": "cell-pairs"}, LIMITS))
        kinds = ("cell-triples", "cell-products")
        if mechanism["type"] in kinds:
            other = kinds[mechanism["type"] == kinds[0]]
            lies.append(("a number beside the reward, or none, as nobody has to ask", {f"{at}.type": other}, LIMITS))
        lies += _of_slopes(body)
    if "chosen" in mechanism:
        lies.append(("more own symbols", {f"{at}.chosen": mechanism["directions"]}, LIMITS))
    if (max_messages := getattr(spec.algorithm, "messages_per_report", 1)) > 1:
        lies += _of_messages(at, mechanism["epsilon"], mechanism["repeats"], max_messages)
    if spec.experiment.reports_per_person > 1:
        lies.append(("three reports", {"policy.terms.reports": 3}, LIMITS))
    if getattr(spec.experiment, "evaluation_fraction", 0):
        return [*lies, *gains.lies(body)]
    if spec.algorithm.name == "additive":
        lies += _of_shapes(at, policy)
    if spec.algorithm.name == "linear":
        ball = mechanism["ball"]
        if "bound" in ball:
            lies.append(("a larger ball", {f"{at}.ball.bound": 2.0}, LIMITS))
        else:
            lies.append(("an arm that is not there", {f"{at}.ball.arms": ball["arms"] + 1}, LIMITS))
            lies.append(("rows of fewer coordinates", {f"{at}.ball.dimension": ball["dimension"] - 1}, LIMITS))
            lies.append(("less of the second moments", {f"{at}.ball.share": ball["share"] / 2}, LIMITS))
            lies.append(("residuals without a bound", {f"{at}.ball.share": -1.0}, LIMITS))
            lies.append(("vectors of a length besides", {f"{at}.ball.bound": 1.0}, LIMITS))
        lies.append(("another link", {"policy.link": "cubic"}, LIMITS))
        place = next((n for n, block in enumerate(policy["design"]["blocks"]) if block["cyclic"]), 0)
        turned = not policy["design"]["blocks"][place]["cyclic"]
        lies.append(("another circle", {f"policy.design.blocks.{place}.cyclic": turned}, LIMITS))
    return lies


def _of_shapes(at: str, policy: dict[str, Any]) -> list[FalseTerms]:
    """Questions and cells of another spec, and numbers that no learner has."""
    edits: dict[str, dict[str, Any]] = {
        "other merged cells": {"policy.questions.merges": not policy["questions"]["merges"]},
        "fewer bins": {"policy.questions.cells.features.0.bins": 11},
        "hours that do not come round": {"policy.questions.cells.features.-1.cyclic": False},
        "ages that come round": {"policy.questions.cells.features.0.cyclic": True},
        "a seed below 0": {"policy.seed": -1},
        "residuals that are never below 0": {"policy.below": 0.0},
        "counts by arm, or not": {"policy.counts_arms": not policy["counts_arms"]},
        "no draws": {"policy.draws": ["<i2", [0, *policy["draws"][1][1:]], b""]},
        "draws of other cells": {"policy.draws": ["<i2", [1, 3, 7], bytes(42)]},
        "shares of fewer questions": {"policy.edges": ["<u4", [1], bytes(4)]},
    }
    edits |= _of_plans(policy["plan"], len(policy["questions"]["cells"]["features"]))
    mechanism = policy["terms"]["mechanism"]
    if "sizes" in mechanism:
        sizes, scales = mechanism["sizes"], mechanism["value_scales"]
        edits["answers that nobody gives"] = {f"{at}.sizes": [*sizes[:-1], sizes[-1] + 1]}
        edits["an arm that is not there"] = {f"{at}.arms": mechanism["arms"] + 1}
        edits["larger scales of values"] = {f"{at}.value_scales": [scales[0] + 200, *scales[1:]]}
        edits["larger scales of counts"] = {f"{at}.count_scales": [scale + 400 for scale in scales]}
        edits["scales of fewer questions"] = {f"{at}.value_scales": scales[:-1]}
        edits["no values"] = {f"{at}.value_scales": [0] * len(scales)}
        edits["values that are further below 0"] = {f"{at}.below": min(1.5, 2 * mechanism["below"])}
    else:
        # Who is asked one question would hide those alone who are asked the same.
        kind, (keys, edges), rows = mechanism["layout"]["thresholds"]
        thresholds = [kind, [keys - 3, edges], rows[: 4 * (keys - 3) * edges]]
        edits["an alphabet of fewer answers"] = {f"{at}.layout.thresholds": thresholds}
        edits["more levels"] = {f"{at}.levels": 3}
    return [(name, changes, LIMITS) for name, changes in edits.items()]


def _of_plans(plan: dict[str, Any] | None, features: int) -> dict[str, dict[str, Any]]:
    """Arms by coins that no learner gives, and none where one does."""
    if plan is None:
        edges = ["<u4", [2, features], bytes(8 * features)]
        even = {"playable": ["|b1", [3], b"\1\1\1"], "given": 0, "edges": edges}
        return {"arms by coins": {"policy.plan": even | {"resolutions": ["<i8", [features], bytes(8 * features)]}}}
    kind, shape, edges = plan["edges"]
    _, [count], named = plan["resolutions"]
    falling, other = np.frombuffer(edges, "<u4").copy(), np.frombuffer(named, "<i8").copy()
    falling[0], other[1] = 65_537, other[0]
    return {
        "no arms by coins": {"policy.plan": None},
        "more people get an arm by coins than the layout says": {"policy.plan.given": plan["given"] + 9000},
        "more people than there are": {"policy.plan.given": 65_537},
        "fewer than nobody": {"policy.plan.given": -1},
        "edges that fall": {"policy.plan.edges": [kind, shape, falling.tobytes()]},
        "edges of coins alone": {"policy.plan.edges": [kind, [1, shape[1]], edges[: len(edges) // 2]]},
        "a question about another feature": {"policy.plan.resolutions": ["<i8", [count], other.tobytes()]},
        "no question about a feature": {"policy.plan.resolutions": ["<i8", [count], bytes(8 * count)]},
        "a feature without a question": {"policy.plan.resolutions": ["<i8", [count - 1], named[8:]]},
        "another arm is retired": {
            "policy.plan.playable": ["|b1", [len(plan["playable"][2])], b"\1\0" + plan["playable"][2][2:]]
        },
    }


def _of_slopes(body: bytes) -> list[FalseTerms]:
    """List slopes that no learner makes, and more of them than there are numbers with open slopes."""
    learned = msgspec.msgpack.decode(msgspec.msgpack.decode(body)[2])["learned"]
    edits: dict[str, dict[str, Any]] = {"more slopes": {"policy.learned": [{"slope": 0.5, "mean": 0.5}] * 3}}
    if learned:
        lies = {"slope": (1.500001, -2, None, "1"), "mean": (-0.01, 1.01, None)}
        edits |= {
            f"a {name} of {lie!r}": {"policy.learned": [learned[0] | {name: lie}, *learned[1:]]}
            for name, wrong_values in lies.items()
            for lie in wrong_values
        }
    return [(f"learned: {name}", changes, LIMITS) for name, changes in edits.items()]


def _of_messages(at: str, epsilon: float, repeats: int, limit: int) -> list[FalseTerms]:
    """List numbers of messages that no device sends, in mechanism and round."""
    edits = {f"{name} messages": {f"{at}.repeats": name, "round.6": name} for name in (17, limit + 1, repeats + 1)}
    # A round of no messages, or of a text of them, is no round: only the mechanism says so.
    edits |= {f"{count!r} messages": {f"{at}.repeats": count} for count in (0, -1, 1.5, "2", None)}
    edits["several messages whose coins tell classes"] = {f"{at}.classes": 3}
    edits["fewer messages in the round"] = {"round.6": repeats - 1}
    edits["one message in the mechanism"] = {f"{at}.repeats": 1}
    # Delta is within 2 % of the promise there: a coarse grid has more.
    edits["all that the promise allows"] = {f"{at}.epsilon": epsilon + 0.0625}
    lies = [(name, changes, LIMITS) for name, changes in edits.items()]
    return [*lies, ("a device that allows what a message costs", {}, LIMITS | {"local_epsilon": 4.0})]

"""What an experiment with vectors claims, as a certificate."""

from collections.abc import Iterable

from privateer.accounting.events import Event
from privateer.certificate import ASSUMES, FORMAT, Certificate, Claim, claim_of, nothing_claimed
from privateer.mechanisms.vector_terms import VectorTerms

_READERS = {
    "local": "everybody together",
    "shuffle": "the server",
    "central": "readers of what is published",
    "none": "readers of what is published",
}


def certify_vectors(experiment: str, rounds: Iterable[VectorTerms]) -> Certificate:
    """The certificate of an experiment with these terms, round by round; a person is in one round.

    Where a published calibration does not keep its promise the claim states the delta that is true.
    """
    distinct = sorted(set(rounds), key=repr)
    model = distinct[0].model
    events: set[Event] = {terms.event for terms in distinct if terms.event is not None}
    if model == "none" or not events:
        first = nothing_claimed(_READERS[model])
    else:
        delta = distinct[0].delta
        if not all(terms.holds for terms in distinct):
            delta = max(terms.true_delta for terms in distinct)
        sampling = max(terms.sampling for terms in distinct)
        first = claim_of(_READERS[model], distinct[0].epsilon, delta, events, sampling)
    return Certificate(FORMAT, experiment, (first, *_others(model)), ASSUMES[model])


def _others(model: str) -> tuple[Claim, ...]:
    if model == "shuffle":
        proof = "nothing is claimed: together they see everybody's own noisy vector, whose noise is for the batch"
        return (Claim("server and shuffler", None, 1.0, None, 0.0, proof, exact=True),)
    return () if model == "local" else (nothing_claimed("the server"),)

"""Attacks on normal noise by the textbook's constant, below epsilon 1, and on the bits of paper 5."""

from privateer_core.mechanisms.vector_noise import CentralVectors, GaussianVectors
from privateer_lab.audit.case import Case
from privateer_lab.audit.mechanisms.bounded_vectors import BALL, BOX, DELTA, PEOPLE, target
from privateer_lab.audit.views import batches, mechanism_case, releases, reports
from privateer_papers.paper_5.bits import published_vectors
from privateer_papers.trust import PUBLISHED, classic_noise


def cases(samples: int) -> list[Case]:
    """Return all of them: the noise of devices and of a curator is private below epsilon 1 alone."""
    claim, found = (0.9, DELTA), []
    for ball in (BALL, BOX):
        noise = classic_noise(ball, *claim)
        device, curator = target(GaussianVectors(ball, noise)), target(CentralVectors(ball, noise))
        count = max(2000, samples // 10)
        found += [
            mechanism_case(f"vectors in {ball.norm}", reports, device, claim, 4 * samples, PUBLISHED),
            mechanism_case(f"release in {ball.norm}", releases, curator, claim, count, PUBLISHED),
        ]
    bits, promise = published_vectors(BOX, 10.0, 0.01, PEOPLE), (10.0, 0.01)
    summed = mechanism_case("summed batch", batches, target(bits), promise, max(2000, samples // 20), PUBLISHED)
    return [*found, summed]

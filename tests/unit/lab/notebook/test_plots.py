"""Pictures: axes with labels, titles in words, distinguishable colours, and the certified curve."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privateer_lab as lab
from privateer_core.accounting.accountant import account
from privateer_core.errors import SpecError
from privateer_core.privacy.certificate import certify
from privateer_core.privacy.risk import assess_risks
from privateer_lab.notebook.plot import max_true_positive_rates
from privateer_lab.render.pictures import COLOURS

FALSE = np.linspace(0, 1, 501)


@pytest.fixture(scope="module")
def peaks() -> lab.Simulated:
    return lab.simulate("examples/peaks-shuffle.toml", users=6000, seeds=2)


@pytest.fixture(scope="module")
def effects() -> lab.Simulated:
    return lab.simulate("examples/trial.toml", users=20_000, seeds=1)


def size_of(png: bytes) -> tuple[int, int]:
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", png[16:24])


def check(picture: Any) -> None:
    """A picture has a title, labelled axes, and fits a column."""
    assert picture.title
    assert picture.figure._suptitle.get_text() == picture.title
    assert all(axis.get_xlabel() for axis in picture.figure.axes)
    width, height = size_of(picture._repr_png_())
    assert 400 <= width <= 800
    assert 150 <= height <= 1200


def test_each_picture_is_drawn_with_one_call(peaks: lab.Simulated, effects: lab.Simulated, tmp_path: Path) -> None:
    planned = lab.plan("examples/peaks-shuffle.toml", trust=["local", "central"], epsilon=[1, 4], users=3000, seeds=1)
    pictures = [lab.plot.policy(peaks), lab.plot.policy(peaks.policy, "x2"), lab.plot.policy(effects)]
    pictures += [lab.plot.regret(peaks), lab.plot.regret(planned), lab.plot.effects(effects), lab.plot.privacy(peaks)]
    for picture in pictures:
        check(picture)
    pictures[0].save(tmp_path / "policy.svg")
    assert (tmp_path / "policy.svg").read_text().count("<svg") == 1
    assert peaks.path.columns["people"][-1] == 6000


def test_the_map_has_the_policys_arms(peaks: lab.Simulated) -> None:
    """The colour of a place is that of the arm that people there get most."""
    axis = lab.plot.policy(peaks).figure.axes[0]
    pixels = axis.collections[0].get_array().reshape(160, 160, 3)
    middles = (np.arange(160) + 0.5) / 160
    shares = peaks.policy.shares({"x1": middles, "x2": np.full(160, middles[30])})
    for index in np.flatnonzero(shares.max(axis=1) > 0.999):
        colour = COLOURS[int(shares[index].argmax())]
        assert tuple(round(255 * float(part)) for part in pixels[30, index]) == tuple(
            int(colour[k : k + 2], 16) for k in (1, 3, 5)
        )


@pytest.mark.parametrize("name", ["bandit", "linear", "levels-shuffle", "miss-shuffle", "num10-shuffle"])
def test_policies_of_every_kind_have_a_map(name: str) -> None:
    simulated = lab.simulate(f"examples/{name}.toml", users=3000, seeds=1)
    check(lab.plot.policy(simulated))
    assert len(simulated.policy) > 0


def claims(spec: str, changes: dict[str, Any] | None = None) -> Any:
    parsed = lab.spec(spec, changes)
    terms = parsed.first_terms("")
    assert terms is not None
    return certify(parsed.name, parsed.privacy, [terms], planned=True)


@pytest.mark.parametrize("name", ["local", "shuffle", "central"])
def test_an_attack_achieves_the_rates_of_the_curve(name: str) -> None:
    """Its best advantage is the published risk, and at any false-positive rate it satisfies (epsilon, delta)."""
    certificate = claims(f"examples/peaks-{name}.toml")
    for claim, risk in zip(certificate.claims, assess_risks(certificate).risks, strict=True):
        rates = max_true_positive_rates(claim, FALSE)
        assert (np.diff(rates) >= -1e-12).all()
        assert (rates >= FALSE).all()
        if claim.epsilon is None:
            assert (rates == 1).all()
            continue
        assert (rates <= np.exp(claim.epsilon) * FALSE + claim.delta + 1e-12).all()
        assert (rates - FALSE).max() == pytest.approx(risk.advantage, rel=0.02, abs=1e-6)
        delta = account(claim.event).delta(0.0) + claim.sampling
        assert (rates <= FALSE + delta + 1e-12).all()


def test_randomized_response_has_the_curve_of_two_answers() -> None:
    claim = claims("examples/peaks-local.toml", {"privacy.epsilon": 2.0}).claims[0]
    e = np.exp(2.0)
    exact = np.minimum(e * FALSE, 1 - (1 - FALSE) / e)
    assert max_true_positive_rates(claim, FALSE) == pytest.approx(exact, abs=1e-9)


def test_a_plot_that_is_not_possible_is_refused(peaks: lab.Simulated) -> None:
    with pytest.raises(SpecError, match=r"age: no feature has this name \(choose from x1, x2\)"):
        lab.plot.policy(peaks, "age")
    with pytest.raises(SpecError, match=r"policy: is no policy \(give the name of an experiment"):
        lab.plot.policy(3)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="estimates no effects"):
        lab.plot.effects(peaks)
    with pytest.raises(SpecError, match="has no regret"):
        lab.plot.regret(peaks.policy)  # type: ignore[arg-type]
    for name in ("convex-one-point", "stations"):
        simulated = lab.simulate(f"examples/{name}.toml", seeds=1)
        with pytest.raises(SpecError, match="chooses something else than an arm for each person"):
            lab.plot.policy(simulated)
    with pytest.raises(SpecError, match="promises nothing"):
        lab.plot.privacy(lab.spec("examples/peaks-local.toml", {"privacy.model": "none", "privacy.epsilon": None}))

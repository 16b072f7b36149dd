"""References of the five papers: authors, titles, venues and links."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class PaperReference:
    """The reference of a paper."""

    number: int
    # as the copy that was read has them; no authors if it names nobody
    title: str
    authors: tuple[str, ...]
    venue: str  # where it was published
    link: str  # its address at arXiv or by DOI, without a scheme
    remark: str = ""  # what a reader has to know of the copy that was read; empty if nothing

    @property
    def opening(self) -> str:
        """The opening sentence of every page about the paper."""
        *others, last = self.authors or ("No author named",)
        names = f"{', '.join(others)} and {last}" if others else last
        return " ".join(filter(None, (f"{names}: {self.title}. {self.venue}, {self.link}.", self.remark)))


PUBLICATIONS: Final = (
    PaperReference(
        1,
        "Locally Private Nonparametric Contextual Multi-armed Bandits with Transfer Learning",
        ("Yuheng Ma", "Feiyu Jiang", "Zifeng Zhao", "Hanfang Yang", "Yi Yu"),
        "arXiv, version 2, 2025",
        "arxiv.org/abs/2503.08098",
    ),
    PaperReference(
        2,
        "Locally Differentially Private (Contextual) Bandits Learning",
        ("Kai Zheng", "Tianle Cai", "Weiran Huang", "Zhenguo Li", "Liwei Wang"),
        "NeurIPS 2020",
        "arxiv.org/abs/2006.00701",
    ),
    PaperReference(
        3,
        "Differentially Private High-dimensional Bandits",
        ("Apurv Shukla",),
        "arXiv, version 1, 2024",
        "arxiv.org/abs/2402.03737",
    ),
    PaperReference(
        4,
        "Beyond ATE: Multi-Criteria Design for A/B Testing",
        ("Jiachun Li", "Kaining Shi", "David Simchi-Levi"),
        "arXiv, 2025",
        "arxiv.org/abs/2509.05864",
    ),
    PaperReference(
        5,
        "Global Reward Maximization with Partial Feedback via Differentially Private Distributed Linear Bandits",
        (),
        "Under double-blind review; later in IEEE Transactions on Network Science and Engineering, 2024",
        "doi.org/10.1109/TNSE.2024.3362978",
        "The copy that was read is anonymous. The printed version, Distributed Linear Bandits with Differential "
        "Privacy, is by Fengjiao Li, Xingyu Zhou and Bo Ji (arxiv.org/abs/2207.05827); it was not read.",
    ),
)
"""The papers in their order."""

"""What the paper itself reports, as numbers.

Source: Pfülb, Gepperth and Bagus 2021, "Continual Learning with Fully Probabilistic
Models" (CLVISION workshop at CVPR), table "Results of the conducted GMR, EWC and GR
experiments": accuracy on D10 in percent, the difference of every other SLT to it, and
the standard deviation of either over ten repetitions. By its caption these are the
maximum accuracies of a run on the joint test set of all ten classes.

Read with care (docs/method-paper.md lists the reasons): the deviations of D9-1a repeat
those of D10 for GMR and EWC, and 99.3 on FashionMNIST is no test accuracy that the
solver of the appendix, a fully connected network, can reach.
"""

from __future__ import annotations

from dataclasses import dataclass

SLTS = ("D10", "D9-1a", "D9-1b", "D5-5a", "D5-5b", "D2-2-2-2-2a", "D2-2-2-2-2b")
"""In the order of the table's rows."""

MODELS = ("GMR", "EWC", "GR")
"""In the order of the table's columns."""


@dataclass(frozen=True)
class Reported:
    """One entry of the paper's table, in percent."""

    accuracy: float
    deviation: float


# Per model and data set: accuracy on D10, differences to it, deviations; in the order of SLTS.
_TABLE: dict[str, dict[str, tuple[float, tuple[float, ...], tuple[float, ...]]]] = {
    "GMR": {
        "mnist": (
            87.4,
            (0, -1.3, -3.5, -0.6, -1.3, -9.5, -10.4),
            (0.59, 0.59, 2.19, 1.53, 1.92, 3.83, 5.28),
        ),
        "fashion_mnist": (
            73.9,
            (0, -2.7, -1.5, -1.2, -1.9, -8.5, -5.7),
            (0.26, 0.26, 0.87, 1.53, 0.49, 0.91, 2.37),
        ),
        "devanagari": (
            74.1,
            (0, -3.2, -1.4, -6.8, -4.7, -22.5, -14.7),
            (0.73, 0.73, 0.88, 1.38, 1.59, 2.71, 2.94),
        ),
    },
    "EWC": {
        "mnist": (
            97.57,
            (0, -41.8, -50.7, -35.3, -35.0, -72.2, -72.6),
            (0.26, 0.26, 7.77, 6.65, 1.83, 7.43, 3.22),
        ),
        "fashion_mnist": (
            87.55,
            (0, -9.6, -20.1, -32.7, -36.0, -55.6, -57.3),
            (0.38, 0.38, 2.52, 4.22, 2.72, 4.05, 4.99),
        ),
        "devanagari": (
            95.58,
            (0, -56.6, -29.7, -46.0, -47.1, -72.1, -73.2),
            (0.56, 0.56, 13.34, 15.38, 0.11, 2.75, 2.31),
        ),
    },
    "GR": {
        "mnist": (
            99.3,
            (0, -15.1, -21.8, -10.0, -11.9, -41.4, -34.8),
            (0, 0.7, 0.9, 1.4, 1.0, 3.8, 4.1),
        ),
        "fashion_mnist": (
            99.3,
            (0, -25.6, -16.5, -19.8, -17.7, -25.0, -29.4),
            (0, 0.5, 1.1, 3.2, 4.0, 5.9, 7.3),
        ),
        "devanagari": (
            99.1,
            (0, -13.5, -10.9, -6.7, -7.6, -40.0, -34.7),
            (0, 0.54, 0.41, 0.3, 0.37, 3.3, 7.6),
        ),
    },
}

_MODEL_OF = {
    **dict.fromkeys(("paper", "paper-epochs", "flat", "mfa", "dcgmm"), "GMR"),
    "ewc": "EWC",
    "gr": "GR",
}
"""Our system -> the model of the paper that it stands beside."""


def model_beside(system: str) -> str | None:
    """The paper's model that a system of ours is to be compared with; None where it has none.

    Example:
        >>> model_beside("flat"), model_beside("ewc"), model_beside("lda")
        ('GMR', 'EWC', None)
    """
    return _MODEL_OF.get(system)


def reported(model: str | None, data: str, slt: str) -> Reported | None:
    """What the paper reports of a model; None where it reports nothing.

    Example:
        >>> reported("GMR", "mnist", "D2-2-2-2-2a")
        Reported(accuracy=77.9, deviation=3.83)
    """
    of_model = _TABLE.get(model or "", {})
    if data not in of_model or slt not in SLTS:
        return None
    baseline, differences, deviations = of_model[data]
    place = SLTS.index(slt)
    return Reported(round(baseline + differences[place], 1), deviations[place])

"""The six signals of the default rule, and the bets of each.

All are of the one forward pass of the frozen model:

- `inliers`: log-likelihoods fall (the paper's signal),
- `likelihood`: log-likelihoods rise,
- `doubt`: samples belong less surely to a class, or component, than usual,
- `occupancy`: other components, classes or ranks of the likelihood than usual,
- `labels`: where there are any, they contradict what is known of samples like these,
- `features`: a single feature lies elsewhere in the components than usual.
"""

from __future__ import annotations

from core.drift.detector import Cause
from core.drift.sequential.bets import BetTable, CellBet, FeatureBet, LabelBet, RankBet
from core.drift.sequential.cells import AT_ONCE, TRICKLING
from core.drift.sequential.counts import BY_CLASS, BY_COMPONENT, BY_RANK
from core.drift.sequential.scores import LIKELIHOOD as LOG_LIKELIHOOD
from core.drift.sequential.scores import (
    LIKELIHOOD_MARGIN,
    LIKELIHOOD_MARGIN_IN_CLASS,
    MARGIN_IN_CLASS,
)

INLIERS = "inliers"
LIKELIHOOD = "likelihood"
DOUBT = "doubt"
OCCUPANCY = "occupancy"
LABELS = "labels"
FEATURES = "features"
FUSED = "fused"

CAUSES = {
    INLIERS: Cause.NOVELTY,
    DOUBT: Cause.NOVELTY,
    LIKELIHOOD: Cause.SHARES,
    OCCUPANCY: Cause.SHARES,
    FEATURES: Cause.FEATURES,
    LABELS: Cause.LABELS,
}
"""What a signal says a change is about."""

BET_TABLE = BetTable(
    ranks=(
        RankBet(INLIERS, LOG_LIKELIHOOD, high=False, share=0.9, power=0.3, weight=0.2),
        RankBet(INLIERS, LOG_LIKELIHOOD, high=False, share=0.4, power=0.2, weight=0.2),
        RankBet(INLIERS, LOG_LIKELIHOOD, high=False, share=0.1, power=0.12, weight=0.2),
        RankBet(INLIERS, LOG_LIKELIHOOD, high=True, share=0.2, power=8.0, weight=0.1),
        RankBet(INLIERS, LOG_LIKELIHOOD, high=True, share=0.08, power=16.0, weight=0.1),
        RankBet(LIKELIHOOD, LOG_LIKELIHOOD, high=True, share=0.9, power=0.3, weight=0.1),
        RankBet(LIKELIHOOD, LOG_LIKELIHOOD, high=True, share=0.2, power=0.2, weight=0.05),
        RankBet(DOUBT, LIKELIHOOD_MARGIN, high=True, share=0.4, power=4.0, weight=0.1),
        RankBet(DOUBT, LIKELIHOOD_MARGIN, high=True, share=0.2, power=8.0, weight=0.1),
        RankBet(DOUBT, LIKELIHOOD_MARGIN, high=True, share=0.1, power=32.0, weight=0.2),
        RankBet(DOUBT, LIKELIHOOD_MARGIN, high=True, share=0.05, power=64.0, weight=0.2),
        RankBet(DOUBT, LIKELIHOOD_MARGIN_IN_CLASS, high=True, share=0.2, power=8.0, weight=0.1),
        RankBet(DOUBT, LIKELIHOOD_MARGIN_IN_CLASS, high=True, share=0.05, power=64.0, weight=0.2),
        RankBet(DOUBT, MARGIN_IN_CLASS, high=True, share=0.4, power=4.0, weight=0.1),
        RankBet(DOUBT, MARGIN_IN_CLASS, high=True, share=0.1, power=16.0, weight=0.1),
    ),
    cells=(
        CellBet(OCCUPANCY, BY_COMPONENT, AT_ONCE, share=0.8, weight=0.1),
        CellBet(OCCUPANCY, BY_CLASS, AT_ONCE, share=0.8, weight=0.1),
        CellBet(OCCUPANCY, BY_CLASS, TRICKLING, share=0.8, weight=0.1),
        CellBet(OCCUPANCY, BY_RANK, TRICKLING, share=0.8, weight=0.1),
    ),
    labels=(
        LabelBet(LABELS, AT_ONCE, share=0.8, weight=0.1),
        LabelBet(LABELS, TRICKLING, share=0.8, weight=0.1),
    ),
    features=(
        FeatureBet(FEATURES, AT_ONCE, share=0.8, weight=0.1),
        FeatureBet(FEATURES, TRICKLING, share=0.8, weight=0.1),
    ),
)

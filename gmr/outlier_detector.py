"""A scikit-learn outlier detector that is an engine: calibrated, and it learns on.

Example:
    >>> from sklearn.datasets import load_iris
    >>> x, _ = load_iris(return_X_y=True)
    >>> model = GMROutlierDetector().fit(x)
    >>> model.predict([x[0], [50.0, 50.0, 50.0, 50.0]]).tolist()
    [1, -1]
"""

from __future__ import annotations

from typing import Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from sklearn.base import OutlierMixin
from sklearn.utils.validation import check_is_fitted

from gmr.arguments import number
from gmr.held_out import EarlySamples, least_usual
from gmr.stream_estimator import StreamEstimator
from gmr.threads import few_threads

LEAST: Final = -1e300
"""In place of the log of no probability at all."""


class GMROutlierDetector(OutlierMixin, StreamEstimator):  # type: ignore[misc]  # of no types
    """Gaussian Mixture Replay as scikit-learn's outlier detectors are: how strange is a sample?

    `fit` takes all samples as one sub-task, in an order drawn at random; `partial_fit` takes
    them as a stream, in which it looks for boundaries and forgets nothing that it has learned.
    Outliers among the samples do little harm. Samples have D features; they are standardised by
    what has come, and computed with as float32. Of float64 columns that lie so far from zero that
    float32 would lose what varies in them, such as Unix seconds, an offset is taken off before,
    which the first samples fix.

    Some 450 samples must come before p-values are calibrated. Until then the samples are held, and
    the first question after a fit takes as long as five more fits: these tell how likely samples
    are that were not learned.

    Arguments:
        preset: Family of the model: "mfa", "flat", "paper" or "dcgmm".
        n_components: K, the budget of components; None: what suits the preset.
        false_positive_rate: Share of inliers that may be called outliers, between 0 and 1.
        detector: Which rule looks for boundaries; "none" for no looking.
        ert: Expected run time between false alarms, in samples, above 1.
        images: Whether samples are images with features in [0, 1], which keep their scale.
        batch_size: Samples learned at a time, at least 1.
        shuffle: Whether `fit` draws the order of samples.
        random_state: Of every random choice: an integer, a `RandomState`, or None for NumPy's own.
        device: Where it computes, as torch calls it: "cpu", or "cuda" where there is one.

    Attributes:
        n_features_in_: D.
        calibrated_: Whether the rate is kept by p-values, calibrated on samples that were scored
            before they were learned. Some 450 samples must have come for that; until then it is
            kept by the log-likelihoods of samples that were held out of learning, by folds.
        offset_: The least of what `score_samples` says of inliers.
        boundaries_: Places in the stream at which sub-tasks are thought to have begun, with shape
            (B,): samples since `fit`, or since the first `partial_fit`.
    """

    _early: EarlySamples | None = None
    """While p-values wait for their calibration; none in pickles of earlier releases."""

    def __init__(
        self,
        preset: str = "mfa",
        n_components: int | None = None,
        *,
        false_positive_rate: float = 0.05,
        detector: str = "sequential",
        ert: float = 1e7,
        images: bool = False,
        batch_size: int = 100,
        shuffle: bool = True,
        random_state: int | np.random.RandomState | None = 0,
        device: str = "cpu",
    ) -> None:
        self.preset = preset
        self.n_components = n_components
        self.false_positive_rate = false_positive_rate
        self.detector = detector
        self.ert = ert
        self.images = images
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.random_state = random_state
        self.device = device

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Forget everything, then learn all samples in one pass.

        Arguments:
            X: Samples, with shape (N, D), finite.
            y: Of no use; as scikit-learn calls it.

        Raises:
            ValueError: Samples cannot be used.
            InvalidSettings: An argument of the estimator cannot.
        """
        x = self._samples(X, reset=True)
        random = self._start()
        return self._take(x[random.permutation(len(x))] if self.shuffle else x, None)

    def partial_fit(self, X: ArrayLike, y: object = None) -> Self:
        """Learn the next samples of a stream, in the order given.

        Arguments:
            X: Samples, with shape (N, D), finite.
            y: Of no use; as scikit-learn calls it.

        Raises:
            ValueError: Samples cannot be used.
            InvalidSettings: An argument of the estimator cannot.
        """
        first = not hasattr(self, "_model")
        x = self._samples(X, reset=first)
        if first:
            self._start()
        return self._take(x, None)

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """1 for each inlier and -1 for each outlier, with shape (N,).

        Raises:
            NotFittedError: Nothing has been learned.
        """
        return np.where(self.decision_function(X) >= 0, 1, -1)

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """What `score_samples` says, less `offset_`, with shape (N,); negative for outliers.

        Raises:
            NotFittedError: Nothing has been learned.
        """
        found = self.score_samples(X)
        return np.asarray(found - self.offset_)

    def score_samples(self, X: ArrayLike) -> NDArray[np.float64]:
        """How typical each sample is, in nats, with shape (N,); less is stranger.

        The log of the probability of one at least as strange: what p-values are calibrated on.
        Until these are calibrated (`calibrated_`), its log-likelihood.

        Raises:
            NotFittedError: Nothing has been learned.
        """
        snapshot, x = self._asked(X)
        with few_threads(x.shape[1]):
            found = snapshot.outliers(x)
        if found.typicality is not None:
            return np.asarray(found.typicality.cpu().numpy())
        return np.asarray(found.log_likelihoods.double().cpu().numpy()).clip(LEAST)

    def p_values(self, X: ArrayLike) -> NDArray[np.float64] | None:
        """Share of inliers at least as strange as each sample, above 0, at most 1, with shape (N,).

        None while too few samples have come to know (`calibrated_`).

        Raises:
            NotFittedError: Nothing has been learned.
        """
        snapshot, x = self._asked(X)
        with few_threads(x.shape[1]):
            found = snapshot.outliers(x).p_values
        return None if found is None else np.asarray(found.cpu().numpy())

    @property
    def calibrated_(self) -> bool:
        """Whether the rate is kept by p-values."""
        check_is_fitted(self)
        return len(self._model.snapshot.usual) > 0

    @property
    def offset_(self) -> float:
        """The least of what `score_samples` says of inliers."""
        if not self.calibrated_:
            return self._least_early()
        return self._model.snapshot.usual.least_typicality(self.false_positive_rate)

    def _start(self) -> np.random.RandomState:
        self._early = EarlySamples()
        rate = number("false_positive_rate", self.false_positive_rate)
        return self._begin(experts=False, false_positive_rate=rate)

    def _learned(self, x: NDArray[np.float32]) -> None:
        if self._early is not None:
            if len(self._model.engine.inliers.usual(self._model.state)):
                self._early = None
            else:
                self._early.observe(x)

    def _least_early(self) -> float:
        """The least log-likelihood of inliers while no p-values are calibrated."""
        engine, rate = self._model.engine, self.false_positive_rate
        if self._early is None or not self._early.enough:
            info = self._model.snapshot.info
            return info.log_likelihood_mean + float(ndtri(rate)) * info.log_likelihood_deviation
        scores = self._early.scores(
            engine.config, engine.device, self.batch_size, images=self.images
        )
        return max(least_usual(scores, rate), LEAST)

"""The model for River, sample by sample: a detector of change, a classifier, an anomaly detector.

    from gmr.river import GMRAnomalyDetector, GMRClassifier, GMRDetector

Rules of this module:

1. Samples are learned in batches of `batch_size`: until one is full its samples wait, and answers
   are those of the model of before, as they are of a service whose stream flows.
2. The same samples and the same seed give the same model, bit for bit, on a CPU. Asking changes
   nothing.
3. A copy holds plain values and the bytes of a checkpoint (`gmr.online`).

For River's own detectors inside an engine there is `EngineConfig.detector`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clients.extras import naming_the_extra
from core.errors import InvalidLabels

with naming_the_extra("gmr.river", "river"):
    import torch
    from river import anomaly, base

    from clients.http.missing import is_missing
    from core.batch import Batch
    from core.events import BatchSetAside, BoundaryDetected
    from gmr.arguments import batch_size_of, config_of
    from gmr.gaps import Gaps
    from gmr.named_features import NamedFeatures, as_number
    from gmr.offsets import moved, offsets
    from gmr.online import OnlineModel
    from gmr.threads import few_threads

if TYPE_CHECKING:
    import pandas as pd

    from core.config import EngineConfig

__all__ = ["GMRAnomalyDetector", "GMRClassifier", "GMRDetector"]


class GMRDetector(base.DriftAndWarningDetector):
    """Watches one number: whether its distribution has changed, in any way.

    A mixture is learned of it; when samples become less likely than those before, or likelier,
    or fall on other components, there is drift. What comes then is learned beside what is known.
    A missing value (None, NaN, or pandas' NA) is passed over: nothing is learned of it, and it
    counts as a place of the stream all the same. Numbers are computed with as float32, those that
    lie too far from zero for that less an offset, which the first batch fixes.

    Parameters
    ----------
    ert
        Expected run time between false alarms, in samples.
    warm_up
        Samples after each drift before all of the detector is at work; a fifth of them pass
        before it says anything.
    n_components
        Budget of components.
    batch_size
        Samples between two looks.
    seed
        Of every random choice.

    Examples
    --------
    >>> import random
    >>> from gmr.river import GMRDetector

    >>> rng = random.Random(0)
    >>> detector = GMRDetector()
    >>> for i in range(4000):
    ...     detector.update(rng.gauss(0 if i < 3000 else 1, 1))
    ...     if detector.drift_detected:
    ...         print("drift, which began at about", round(detector.boundaries[-1], -2))
    drift, which began at about 3000

    """

    def __init__(
        self,
        ert: float = 1e7,
        warm_up: int = 1000,
        n_components: int = 20,
        batch_size: int = 32,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.ert = ert
        self.warm_up = warm_up
        self.n_components = n_components
        self.batch_size = batch_size
        self.seed = seed
        self.boundaries: list[int] = []
        """Updates, from 0, at which drifts are thought to have begun; missing values count."""
        batch_size_of(batch_size)
        self._gaps = Gaps()
        self._offsets: NDArray[np.float64] | None = None
        self._waiting: list[float] = []
        self._model = OnlineModel(
            config_of(
                preset="flat",
                n_components=n_components,
                n_features=1,
                ert=ert,
                warm_up=warm_up,
                proposal_samples=0,
                experts=False,
                seed=seed,
            ),
            quiet=False,
        )

    def update(self, x: int | float | None) -> None:
        """Take the next number.

        Parameters
        ----------
        x
            Finite; None, NaN or pandas' NA where it is missing, which is counted and not learned.

        Raises
        ------
        NonFiniteFeature
            It is infinite, or no float32 holds it.

        """
        self._reset()
        number = as_number("x", x)
        missing = bool(np.isnan(number))
        self._gaps.observe(missing)
        if missing:
            return
        self._waiting.append(number)
        if len(self._waiting) < self.batch_size:
            return
        values = np.array(self._waiting)[:, None]
        self._waiting = []
        if self._model.state.stream.samples == 0:
            self._offsets = offsets(values)
        features = torch.from_numpy(moved(values, self._offsets))
        for event in self._model.learn(Batch(features)):
            if isinstance(event, BoundaryDetected):
                self.boundaries.append(self._gaps.place(event.estimated_start_sample))
                self._drift_detected = True
            self._warning_detected |= isinstance(event, BatchSetAside)


class _Learner(base.Estimator):
    """The common part of classifier and anomaly detector: samples wait for their batch."""

    def __init__(self, config: EngineConfig, batch_size: int) -> None:
        batch_size_of(batch_size)
        self.boundaries: list[int] = []
        """Samples, from 0, at which sub-tasks are thought to have begun; all that came count."""
        self._bare = 0  # samples before the first that had a feature
        self._model = OnlineModel(config, quiet=False)
        self._features = NamedFeatures()
        self._waiting: list[tuple[dict[Any, Any], int | None]] = []

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            samples, codes = zip(*waiting, strict=True)
            self._features.observe(samples)
            rows = self._features.rows(samples)
            if not rows.size:  # samples without any feature tell nothing
                self._bare += len(waiting)
                return
            events = self._model.learn(Batch.of(torch.from_numpy(rows), [*codes]))
            starts = (e.estimated_start_sample for e in events if isinstance(e, BoundaryDetected))
            self.boundaries.extend(self._bare + start for start in starts)

    @property
    def _started(self) -> bool:
        return self._model.state.stream.samples > 0


class GMRClassifier(_Learner, base.MiniBatchClassifier):
    """Gaussian Mixture Replay as a classifier: it notices new sub-tasks and forgets no old one.

    Features are numbers by name. The model has those of its first batch; others are left out,
    and a missing one is its mean. A label never seen before becomes a new class; a sample whose
    label is missing (None, NaN, or pandas' NA or NaT) teaches the density alone. Features are
    computed with as float32, those that lie too far from zero for that less an offset, which the
    first batch fixes.

    Parameters
    ----------
    preset
        Family of the model: "mfa", "flat", "paper" or "dcgmm".
    n_components
        Budget of components; None for what suits the preset.
    detector
        Which rule looks for boundaries; "none" for no looking.
    ert
        Expected run time between false alarms, in samples.
    experts
        Whether experts with a finite memory say beside the mixture what a sample is called.
    max_classes
        Most classes: labels that are unique by mistake must not fill the memory.
    batch_size
        Samples learned at a time. `learn_many` learns what it is given as one batch.
    seed
        Of every random choice.

    Examples
    --------
    >>> from gmr.river import GMRClassifier
    >>> from river import datasets, evaluate, metrics

    >>> stream = datasets.Phishing().take(500)
    >>> evaluate.progressive_val_score(stream, GMRClassifier(), metrics.Accuracy())
    Accuracy: 87...%

    """

    def __init__(
        self,
        preset: str = "mfa",
        n_components: int | None = None,
        detector: str = "sequential",
        ert: float = 1e7,
        experts: bool = True,
        max_classes: int = 1000,
        batch_size: int = 10,
        seed: int = 0,
    ) -> None:
        self.preset = preset
        self.n_components = n_components
        self.detector = detector
        self.ert = ert
        self.experts = experts
        self.max_classes = max_classes
        self.batch_size = batch_size
        self.seed = seed
        self._codes: dict[Hashable, int] = {}
        self._counts: list[int] = []
        config = config_of(
            preset=preset,
            n_components=n_components,
            detector=detector,
            ert=ert,
            experts=experts,
            max_classes=max_classes,
            # Answers without p-values, which nobody asks for, take half the time.
            outlier_false_positive_rate=None,
            seed=seed,
        )
        super().__init__(config, batch_size)

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: dict[Any, Any], y: Any) -> None:
        """Take the next sample, and learn when a batch is full.

        Raises
        ------
        InvalidLabels
            With its label there would be more than `max_classes`.
        NonFiniteFeature
            A feature is infinite, or no float32 holds it.

        """
        sample = _numbers(x)
        self._count([y])
        self._waiting.append((sample, self._code(y)))
        if len(self._waiting) >= self.batch_size:
            self._flush()

    def predict_proba_one(self, x: dict[Any, Any], **kwargs: Any) -> dict[Any, float]:
        """Probabilities of all labels learned, which sum to one; none before the first label.

        While the first batch waits, they are the shares of the labels so far.
        """
        labels, probabilities = self._named([x])
        return dict(zip(labels, probabilities[0].tolist(), strict=True))

    def learn_many(self, X: pd.DataFrame, y: pd.Series) -> None:
        """Learn the samples as one batch, after those that wait."""
        if len(X) != len(y):
            raise InvalidLabels(f"{len(X)} samples came with {len(y)} labels; expected one each.")
        samples = [_numbers(sample) for sample in X.to_dict(orient="records")]
        labels = y.tolist()
        self._count(labels)
        self._flush()
        codes = [self._code(label) for label in labels]
        self._waiting = list(zip(samples, codes, strict=True))
        self._flush()

    def predict_proba_many(self, X: pd.DataFrame) -> pd.DataFrame:
        """Probabilities of all labels learned, one column each; none before the first label."""
        import pandas as pd

        labels, probabilities = self._named(X.to_dict(orient="records"))
        return pd.DataFrame(probabilities, index=X.index, columns=labels)

    def _count(self, labels: list[Any]) -> None:
        """Refuse labels that would be too many classes, before any of them waits."""
        classes = len(self._codes.keys() | {one for one in labels if not is_missing(one)})
        if classes > self._model.engine.config.max_classes:
            raise InvalidLabels.too_many_classes(classes, self._model.engine.config.max_classes)

    def _code(self, label: Any) -> int | None:
        """The integer that stands for a label: True and 1, which are equal, are one label."""
        if is_missing(label):
            return None
        code = self._codes.setdefault(label, len(self._codes))
        self._counts.extend([0] * (code + 1 - len(self._counts)))
        self._counts[code] += 1
        return code

    def _named(self, samples: list[dict[Any, Any]]) -> tuple[list[Any], NDArray[np.float64]]:
        """Labels that can be answered, and the probability of each for each sample."""
        known = list(self._codes)
        snapshot = self._model.snapshot if self._started else None
        if snapshot is None or not snapshot.answers:
            shares = np.array(self._counts) / max(sum(self._counts), 1)
            return known, np.tile(shares, (len(samples), 1))
        rows = torch.from_numpy(self._features.rows(samples))
        # Of float32, sums of which are one to seven digits only.
        with few_threads(rows.shape[1]):
            found = snapshot.classify(rows).probabilities.double().cpu().numpy()
        found /= found.sum(1, keepdims=True)
        return [known[int(code)] for code in snapshot.answers], found


class GMRAnomalyDetector(_Learner, anomaly.base.AnomalyDetector):
    """Says how strange a sample is, by a share: 0.99 is stranger than 99 of 100 inliers.

    The score is one minus a p-value, calibrated on samples held out of learning. It is 0 until
    enough of them have come, after some 450 samples. Features are as for `GMRClassifier`.

    Parameters
    ----------
    preset
        Family of the model: "mfa", "flat", "paper" or "dcgmm".
    n_components
        Budget of components; None for what suits the preset.
    detector
        Which rule looks for boundaries; "none" for no looking.
    ert
        Expected run time between false alarms, in samples.
    batch_size
        Samples learned at a time.
    seed
        Of every random choice.

    Examples
    --------
    >>> import random
    >>> from gmr.river import GMRAnomalyDetector

    >>> rng = random.Random(0)
    >>> detector = GMRAnomalyDetector()
    >>> for _ in range(1000):
    ...     detector.learn_one({"a": rng.gauss(0, 1), "b": rng.gauss(5, 2)})
    >>> detector.score_one({"a": 0.1, "b": 5.2}) < 0.9
    True
    >>> detector.score_one({"a": 9.0, "b": 5.2}) > 0.99
    True

    """

    def __init__(
        self,
        preset: str = "mfa",
        n_components: int | None = None,
        detector: str = "sequential",
        ert: float = 1e7,
        batch_size: int = 10,
        seed: int = 0,
    ) -> None:
        self.preset = preset
        self.n_components = n_components
        self.detector = detector
        self.ert = ert
        self.batch_size = batch_size
        self.seed = seed
        config = config_of(
            preset=preset, n_components=n_components, detector=detector, ert=ert, seed=seed
        )
        super().__init__(config, batch_size)

    def learn_one(self, x: dict[Any, Any]) -> None:
        """Take the next sample, and learn when a batch is full."""
        self._waiting.append((_numbers(x), None))
        if len(self._waiting) >= self.batch_size:
            self._flush()

    def score_one(self, x: dict[Any, Any]) -> float:
        """Share of inliers that are less strange, 0 to 1; 0 while that is not known."""
        if not self._started:
            return 0.0
        rows = torch.from_numpy(self._features.rows([x]))
        with few_threads(rows.shape[1]):
            p_values = self._model.snapshot.outliers(rows).p_values
        return 0.0 if p_values is None else 1.0 - float(p_values[0])


def _numbers(sample: Mapping[Any, Any]) -> dict[Any, float]:
    """A sample fit to wait: no batch must fail by what came long before it was full."""
    return {name: as_number(name, value) for name, value in sample.items()}

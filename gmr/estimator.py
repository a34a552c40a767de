"""A scikit-learn classifier that is an engine: it learns on, and says what it has not seen.

Example:
    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> model = GMRClassifier().fit(x, y)
    >>> bool(model.score(x, y) > 0.9)
    True
    >>> drawn, names = model.sample(3, classes=[2])
    >>> drawn.shape, names.tolist()
    ((3, 4), [2, 2, 2])
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from clients.http.missing import LARGEST, is_missing
from core.batch import Label
from core.errors import InvalidLabels, InvalidRequest, UnknownClass
from gmr.arguments import whole
from gmr.online import seed_of
from gmr.stream_estimator import PRECISE, StreamEstimator, check_range
from gmr.threads import few_threads


class GMRClassifier(ClassifierMixin, StreamEstimator):  # type: ignore[misc]  # of no types
    """Gaussian Mixture Replay as scikit-learn's classifiers are: one pass, batch by batch.

    `fit` takes all samples as one sub-task, in an order drawn at random; `partial_fit` takes
    them as a stream, in which it looks for boundaries and forgets nothing that it has learned.
    Samples have D features; they are standardised by what has come, and computed with as float32.
    Of float64 columns that lie so far from zero that float32 would lose what varies in them, such
    as Unix seconds, an offset is taken off before, which the first samples fix.

    Arguments:
        preset: Family of the model: "mfa", "flat", "paper" or "dcgmm".
        n_components: K, the budget of components; None: what suits the preset.
        detector: Which rule looks for boundaries; "none" for no looking.
        ert: Expected run time between false alarms, in samples, above 1.
        experts: Whether experts with a finite memory say beside the mixture what a sample is
            called, as suits tables whose classes keep moving.
        max_classes: Most classes, at least 1: labels that are unique by mistake must not fill the
            memory.
        images: Whether samples are images with features in [0, 1], which keep their scale.
        batch_size: Samples learned at a time, at least 1.
        shuffle: Whether `fit` draws the order of samples.
        random_state: Of every random choice: an integer, a `RandomState`, or None for NumPy's own.
        device: Where it computes, as torch calls it: "cpu", or "cuda" where there is one.

    Attributes:
        classes_: Labels, sorted, with shape (C,).
        n_features_in_: D.
        boundaries_: Places in the stream at which sub-tasks are thought to have begun, with shape
            (B,): samples since `fit`, or since the first `partial_fit`.
    """

    def __init__(
        self,
        preset: str = "mfa",
        n_components: int | None = None,
        *,
        detector: str = "sequential",
        ert: float = 1e7,
        experts: bool = True,
        max_classes: int = 1000,
        images: bool = False,
        batch_size: int = 100,
        shuffle: bool = True,
        random_state: int | np.random.RandomState | None = 0,
        device: str = "cpu",
    ) -> None:
        self.preset = preset
        self.n_components = n_components
        self.detector = detector
        self.ert = ert
        self.experts = experts
        self.max_classes = max_classes
        self.images = images
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.random_state = random_state
        self.device = device

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Forget everything, then learn all samples in one pass.

        Arguments:
            X: Samples, with shape (N, D), finite.
            y: The label of each, with shape (N,): integers, strings, or whatever can be sorted;
                None, NaN or pandas' NA for a sample without one.

        Raises:
            ValueError: Samples or labels cannot be used.
            InvalidSettings: An argument of the estimator cannot.
            InvalidLabels: There are more than `max_classes`.
        """
        if _is_all_nan(y):  # scikit-learn's checks ask that such targets are refused
            raise ValueError(
                "Input y contains NaN and nothing else; expected a label for some sample. Name "
                "some, or let y be None for every sample where there are none."
            )
        x, names, named = self._checked(X, y, reset=True)
        random = self._start(unique_labels(names) if len(names) else None, fixed=False)
        order = random.permutation(len(x)) if self.shuffle else np.arange(len(x))
        places = np.cumsum(named) - 1  # among the names
        return self._learn(x[order], names[places[order][named[order]]], named[order])

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike | None = None, classes: ArrayLike | None = None
    ) -> Self:
        """Learn the next samples of a stream, in the order given.

        Arguments:
            X: Samples, with shape (N, D), finite.
            y: The label of each, with shape (N,), or None, NaN or pandas' NA for a sample without
                one, from which only the density learns; None: none has one. All labels of a
                stream are strings, or none is.
            classes: All labels that will come, where they are known; may be left out at the first
                call, too: labels that are new later become new classes. It counts at the first
                call only.

        Raises:
            ValueError: Samples or labels cannot be used, or are not among `classes`.
            InvalidSettings: An argument of the estimator cannot.
            InvalidLabels: With these there would be more than `max_classes`.
        """
        first = not hasattr(self, "_model")
        if y is None:
            x = self._samples(X, reset=first)
            names, named = np.empty(0), np.zeros(len(x), dtype=bool)
        else:
            x, names, named = self._checked(X, y, reset=first)
        if first:
            known = None if classes is None else unique_labels(classes)
            self._start(known, fixed=known is not None)
        if len(names):
            self._meet(unique_labels(names))
        return self._learn(x, names, named)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each sample, with shape (N,).

        Raises:
            NotFittedError: No label has come.
        """
        best = self.predict_proba(X).argmax(1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float32]:
        """Probabilities of `classes_`, with shape (N, C); rows sum to one.

        Raises:
            NotFittedError: No label has come.
        """
        snapshot, x = self._asked(X)
        if not snapshot.answers:
            raise NotFittedError(
                "GMRClassifier has learned samples but no label, so it knows no class to name. "
                "Call partial_fit with labels first; score_samples works already."
            )
        with few_threads(x.shape[1]):
            found = snapshot.classify(x).probabilities.cpu().numpy()
        probabilities = np.zeros((len(found), len(self.classes_)), dtype=np.float32)
        probabilities[:, np.searchsorted(self.classes_, self._names(snapshot.answers))] = found
        return probabilities

    def score_samples(self, X: ArrayLike) -> NDArray[np.float32]:
        """Log-likelihood of each sample, in nats, in the units of X, with shape (N,).

        Raises:
            NotFittedError: Nothing has been learned.
        """
        snapshot, x = self._asked(X)
        with few_threads(x.shape[1]):
            return np.asarray(snapshot.outliers(x).log_likelihoods.cpu().numpy())

    def sample(
        self,
        n_samples: int = 1,
        classes: Sequence[Any] | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> tuple[NDArray[np.floating[Any]], NDArray[Any] | None]:
        """Draw samples from the model.

        Arguments:
            n_samples: n, at least 1.
            classes: Only of these, each as often as any other, or once more; None: of any.
            random_state: Of the draw; the same integer draws the same samples.

        Returns:
            Samples (n, D) in the units of X, float32, or float64 where an offset is taken off some
            column; and the class of each (n,); None for these while no class is known.

        Raises:
            NotFittedError: Nothing has been learned.
            UnknownClass: A class has not been learned.
            InvalidRequest: n is no integer or below 1, or the classes are no list.
        """
        check_is_fitted(self)
        n: object = n_samples
        if not isinstance(n, Integral):
            raise InvalidRequest(
                f"n_samples is {n!r}; it must be an integer. Ask for 1 or more.",
            )
        snapshot = self._model.snapshot
        learned = self._names(snapshot.classes)
        wanted = None
        if classes is not None:
            if np.ndim(np.asarray(classes)) != 1:
                raise InvalidRequest.no_list(classes)
            codes = dict(zip(learned.tolist(), snapshot.classes, strict=True))
            asked = np.asarray(classes).tolist()
            unknown = [name for name in asked if name not in codes]
            if unknown:
                raise UnknownClass.among(unknown, list(codes))
            wanted = [codes[name] for name in asked]
        with few_threads(self.n_features_in_):
            drawn = snapshot.sample(
                int(n_samples), wanted, seed=seed_of(check_random_state(random_state))
            )
        features: NDArray[np.floating[Any]] = np.asarray(drawn.features.cpu().numpy())
        if self._offsets is not None:
            features = features + self._offsets
        return features, learned[drawn.codes.cpu().numpy()] if len(learned) else None

    # The engine behind it -----------------------------------------------------------------

    def _start(self, labels: NDArray[Any] | None, fixed: bool) -> np.random.RandomState:
        """A new engine, for labels that are known by now; where `fixed`, no others may come."""
        self._count(0 if labels is None else len(labels))
        # Answers without p-values, which nobody asks for, take half the time.
        random = self._begin(
            experts=self.experts, false_positive_rate=None, max_classes=self.max_classes
        )
        self._fixed = fixed
        self._labels: NDArray[Any] = np.empty(0) if labels is None else labels
        self.classes_ = self._labels
        return random

    def _meet(self, labels: NDArray[Any]) -> None:
        """Take new labels among the classes; codes of the engine stay what they are."""
        if len(self._labels):
            _check_kinds(self._labels, labels)
        new = np.setdiff1d(labels, self._labels)
        if len(new) and self._fixed:
            raise ValueError(
                f"y has the labels {new.tolist()}, which are not among the classes given at the "
                f"first call of partial_fit: {self._labels.tolist()}. Name all classes there, or "
                f"none."
            )
        self._count(len(self._labels) + len(new))
        if len(new):
            self._labels = np.concatenate([self._labels, new]) if len(self._labels) else new
            self.classes_ = np.sort(self._labels)

    def _count(self, classes: int) -> None:
        """Refuse too many before any is learned."""
        most = whole("max_classes", self.max_classes)
        if classes > most:
            raise InvalidLabels.too_many_classes(classes, most)

    def _checked(
        self, X: ArrayLike, y: ArrayLike, reset: bool
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
        """Samples (N, D), the labels of those that have one, and which these are (N,)."""
        if isinstance(y, list | tuple):
            _check_mixed(y)
        some = _with_gaps(y)
        if some is None:
            x, names = validate_data(self, X, y, dtype=list(PRECISE), reset=reset)
            check_range(x)
            named = np.ones(len(x), dtype=bool)
        else:
            x = self._samples(X, reset=reset)
            check_consistent_length(x, some)
            named = np.array([one is not None for one in some], dtype=bool)
            names = column_or_1d(np.asarray([one for one in some if one is not None]))
        if len(names):
            check_classification_targets(names)
        return x, names, named

    def _learn(self, x: NDArray[Any], names: NDArray[Any], named: NDArray[np.bool_]) -> Self:
        labels: list[Label | None] | None = None
        if named.any():
            order = np.argsort(self._labels, kind="stable")
            codes = iter(order[np.searchsorted(self._labels, names, sorter=order)].tolist())
            labels = [next(codes) if one else None for one in named.tolist()]
        return self._take(x, labels)

    def _names(self, codes: Sequence[Label]) -> NDArray[Any]:
        """The labels that codes of the engine stand for."""
        return np.asarray(self._labels[np.asarray(codes, dtype=np.int64)])


def _is_text(label: object) -> bool:
    return isinstance(label, str)  # np.str_ included


def _check_mixed(y: Sequence[Any]) -> None:
    """Refuse texts beside others, of which NumPy would make texts.

    Raises:
        ValueError: There are both.
    """
    kinds = {type(one): one for one in y if not is_missing(one)}.values()
    texts = [one for one in kinds if _is_text(one)]
    if texts and len(texts) < len(kinds):
        other = next(one for one in kinds if not _is_text(one))
        raise ValueError(_two_kinds(texts[0], other))


def _check_kinds(known: NDArray[Any], labels: NDArray[Any]) -> None:
    """Refuse labels that, beside the known ones, NumPy would turn into others.

    Arguments:
        known: Labels so far, with shape (C,), at least one.
        labels: New and old ones, with shape (M,).

    Raises:
        ValueError: They are texts beside others, or integers beside floats that cannot tell them
            apart.
    """
    if not len(labels):
        return
    before, now = known[:1].tolist()[0], labels[:1].tolist()[0]
    if _is_text(before) != _is_text(now):
        raise ValueError(_two_kinds(now, before))
    if {known.dtype.kind, labels.dtype.kind} in ({"i", "f"}, {"u", "f"}):
        whole_ones = labels if known.dtype.kind == "f" else known
        if max(int(whole_ones.max()), -int(whole_ones.min())) > LARGEST:
            raise ValueError(
                "y has integers beyond 2**53 beside floats, which cannot tell such integers "
                "apart. Let all labels be integers, or all be strings."
            )


def _two_kinds(one: object, other: object) -> str:
    return (
        f"y has labels of two kinds: {one!r} ({type(one).__name__}) beside {other!r} "
        f"({type(other).__name__}), which would become strings. Let all labels of a stream be "
        f"strings, or none."
    )


def _is_all_nan(y: ArrayLike) -> bool:
    numbers = isinstance(y, np.ndarray) and y.dtype.kind == "f" and len(y) > 0
    return numbers and bool(np.isnan(y).all())


def _with_gaps(y: ArrayLike) -> list[Any] | None:
    """Labels one by one, None where missing; None where none is, or they are not in a row."""
    if not isinstance(y, list | tuple | np.ndarray) or np.ndim(y) != 1:
        y = getattr(y, "array", None)  # type: ignore[assignment]  # of pandas
    if y is None or (isinstance(y, np.ndarray) and y.dtype.kind not in "fO"):
        return None
    found = [None if is_missing(one) else one for one in y]  # type: ignore[union-attr]
    return found if any(one is None for one in found) else None

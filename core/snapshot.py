"""The snapshot that answers requests: a model at rest, in the sender's units, read-only.

A snapshot is a value. Taking a newer one is one assignment; whoever holds the older
one can finish its request with it.

Throughout: N samples, D features, C classes; log-likelihoods in nats, in the sender's units.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from core.batch import Batch, Label, SupportsArray, as_float32, distinct, plain_label
from core.density.deep.shifts import Shifts
from core.density.density import Scored
from core.errors import (
    InvalidRequest,
    ModelNotReady,
    OtherRelease,
    ShapeMismatch,
    UnknownClass,
)
from core.experts.panel import Rules
from core.model.families import density_of
from core.model.model import Model
from core.model.readout import at_most_one, readout_type
from core.model.sampling import MAX_DRAWS, draw, noise_of_a_class
from core.outliers.p_values import Typicality
from core.outliers.scales import of_inliers, scales_of
from core.standardiser import Standardiser
from core.tensors import pack, unpack

FORMAT = "gmr-snapshot-3"

LOG_LIKELIHOOD = "log_likelihood"
P_VALUE = "p_value"
"""What decides whether a sample is an outlier."""

LEAST_CONFIDENCE = 0.9
"""A sample drawn for a class is drawn again while the model itself is less sure of it ..."""

FEATURES_PER_DOUBT = 20
"""... at a temperature of D over this, and its other components object
(`core.model.acceptance`)."""

TEMPERED_DRAWS = 2
"""Draws of a sample for a class by a read-out that is tempered, whose doubts are rough: where a
class is doubtful as a whole, the surest of many draws would be taken, all much alike."""

PATIENT_DRAWS = 8 * MAX_DRAWS
"""Draws of a sample whose least class probability the caller named."""


class Classification(NamedTuple):
    """Answers to "which class?"."""

    codes: Tensor  # (N,) int64, index into the snapshot's answers
    probabilities: Tensor  # (N, C) rows sum to one
    log_likelihoods: Tensor  # (N,)
    inliers: Tensor  # (N,) bool, by what `score` names
    p_values: Tensor | None  # (N,) float64, share of inliers at least as strange; if asked for
    unknown: (
        Tensor | None
    )  # (N,) bool, no inlier at the rate that was asked for; None where none was
    score: str  # LOG_LIKELIHOOD or P_VALUE
    calibration: int  # scores behind the p-values; 0: too few, and nothing is said by them


class OutlierScores(NamedTuple):
    """Answers to "how typical?"."""

    log_likelihoods: Tensor  # (N,)
    inliers: Tensor  # (N,) bool
    threshold: float  # of what `score` names; a sample below it is an outlier, and one whose
    # p-value is at it; below what p-values can be, see `Typicality.inliers`
    p_values: (
        Tensor | None
    )  # (N,) float64, share of inliers at least as strange, above 0, at most 1
    typicality: Tensor | None  # (N,) float64, what the p-values rank: log of a tail probability
    scales: Tensor | None  # (N,) float64, share of the mixture from which each is strangest
    score: str  # LOG_LIKELIHOOD or P_VALUE
    calibration: int  # scores behind the p-values; 0: too few, and there are none
    components: Tensor | None = None  # (N,) int64, the most responsible one; if asked for
    responsibilities: Tensor | None = None  # (N,) float32, its probability given the sample


class Strangeness(NamedTuple):
    """The p-values of N samples, and what they rest on."""

    typicality: Tensor  # (N,) float64, log of a tail probability
    p_values: Tensor  # (N,) float64
    scales: Tensor  # (N,) float64, share of the mixture from which each is strangest


class Samples(NamedTuple):
    """Draws from the model."""

    features: Tensor  # (n, D)
    codes: Tensor  # (n,) int64, index into the snapshot's classes; -1 while none is known
    log_likelihoods: Tensor  # (n,)
    probabilities: Tensor  # (n,) that the model gives each sample's class
    short: Tensor  # (n,) bool, not as surely of its class as was asked for: the best that came


@dataclass(frozen=True)
class ModelInfo:
    """Facts about a model that need no request."""

    model_version: int
    preset: str
    device: str
    components: int
    budget: int  # components the model may have at most
    features: int
    classes: tuple[Label, ...]
    class_counts: tuple[int, ...]  # labelled samples learned, per class
    samples_seen: int
    batches_seen: int
    sub_task: int
    parameters: int
    bytes: int
    detector: str
    window: int  # raw samples of the current sub-task held now
    set_aside: int  # raw samples held because they look like a change
    outlier_c: float
    log_likelihood_mean: float
    log_likelihood_deviation: float
    waiting: int = 0  # of `window`, those that the model takes in once the stream is quiet
    awaiting: int = 0  # raw samples held because they await their label
    unknown: int = 0  # raw samples without a label held because they are unknown
    recent: int = 0  # the last raw samples learned without a label, held to find new classes
    heard: int = 0  # raw labelled samples that experts hold
    image_shape: tuple[int, ...] = ()  # (H, W) or (H, W, C), where samples first came in it

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; `classes` becomes a list of label and count."""
        values = asdict(self)
        counts = values.pop("class_counts")
        values["classes"] = [
            {"label": label, "count": count}
            for label, count in zip(self.classes, counts, strict=True)
        ]
        return values


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A model that answers.

    Arguments:
        info: Facts about it.
        model: In standardised units.
        standardiser: From the sender's units to those.
        usual: What p-values rest on; nothing in snapshots of earlier releases.
        false_positive_rate: By which samples are outliers; None: by `outlier_c`.
        experts: Who say beside the model what samples are called; None where there are none.
        ahead: Classes that experts have heard of, and that the model has yet to learn.
    """

    info: ModelInfo
    model: Model
    standardiser: Standardiser
    usual: Typicality = field(default_factory=Typicality.none)
    false_positive_rate: float | None = None
    experts: Rules | None = None
    ahead: tuple[Label, ...] = ()

    @property
    def version(self) -> int:
        """Names this model for ever."""
        return self.info.model_version

    @property
    def classes(self) -> tuple[Label, ...]:
        """Labels of what the model has learned, in order of discovery."""
        return self.info.classes

    @property
    def answers(self) -> tuple[Label, ...]:
        """Labels that a sample can be given: `classes`, then those `ahead`."""
        return (*self.classes, *self.ahead)

    @cached_property
    def known_labels(self) -> frozenset[tuple[type, Label]]:
        """`classes` as keys under which labels are told apart: see `core.batch.distinct`."""
        return frozenset(map(distinct, self.classes))

    @property
    def is_table(self) -> bool:
        """Whether its samples are known to be no images in [0, 1]."""
        return self.experts is not None or self.standardiser.beyond_unit_range

    def _prepared(self, x: Tensor) -> Tensor:
        if x.dtype == torch.uint8 and self.is_table:
            raise ShapeMismatch.bytes_for_a_table()
        # Checked as the model will see it: 1e300 is finite until it becomes a float32.
        batch = Batch(x).to_float32(self.model.density.device)
        batch.check(self.info.features, self.info.image_shape)
        return self.standardiser.apply(batch.features)

    def _score(self, x: Tensor) -> Scored:
        joint, log_likelihood = self.model.density.score(x)
        return Scored(joint, log_likelihood - self.standardiser.log_volume)

    def _named(self, features: Tensor, x: Tensor, joint: Tensor) -> Tensor:
        """Probabilities of `answers` (N, C), by the mixture and the experts beside it.

        Arguments:
            features: Samples in the sender's units, with shape (N, D).
            x: The same standardised.
            joint: What the density says of them, with shape (N, K).
        """
        mixture = self.model.class_probabilities(x, joint)
        if self.experts is None:
            return at_most_one(mixture)
        advice = self.experts.advice(features, mixture, len(self.answers))
        return at_most_one(advice.probabilities).to(mixture)

    def _strangeness(self, x: Tensor, scored: Scored) -> Strangeness | None:
        """Strangeness of standardised samples (N, D); None while too few scores are known."""
        if not len(self.usual):
            return None
        table = self.usual.n_scales > 0
        conformity = self.model.density.conformity(x, scored, closeness=not table)
        conformity, _ = of_inliers(
            conformity,
            self.model.readout,
            scored.joint,
            self.model.density.log_weights,
            self.standardiser.log_volume,
            x.shape[1],
            table=table,
        )
        typicality, which = self.usual.strangest(conformity)
        scales = scales_of(which, self.usual.n_scales)
        return Strangeness(typicality, self.usual.p_values(typicality), scales)

    def threshold(self, c: float | None = None) -> float:
        """Log-likelihood below which a sample is an outlier: mean - c * deviation (the paper)."""
        deviations = self.info.outlier_c if c is None else c
        return self.info.log_likelihood_mean - deviations * self.info.log_likelihood_deviation

    def make_ready(self) -> None:
        """Work out what the first question would wait for."""
        sample = self.standardiser.shift[None]
        if self.answers:
            self.classify(sample, p_values=True)
        else:
            self.outliers(sample)

    def classify(
        self,
        x: Tensor | SupportsArray | Sequence[object],
        unknown_rate: float | None = None,
        *,
        p_values: bool = False,
    ) -> Classification:
        """Name the most probable class of each sample.

        Arguments:
            x: Samples, as `Batch.of` takes them, with shape (N, D), in the sender's units.
            unknown_rate: Share of inliers, above 0 and below 1, that may be called unknown, and
                outliers. None: no answer is unknown, and outliers are as configured. While too
                few scores are known for p-values, the log-likelihood decides on outliers, and
                `unknown` is None.
            p_values: Whether to answer p-values without a rate, too.

        Raises:
            ShapeMismatch, NonFiniteFeature: The samples cannot be used.
            ModelNotReady: No label was ever seen.
            InvalidRequest: The rate is none.
        """
        _check_rate("unknown_rate", unknown_rate)
        asked_of = Batch.of(x).features
        x = self._prepared(asked_of)
        scored = self._score(x)
        joint, log_likelihoods = scored
        if not self.answers:
            raise ModelNotReady(
                "The model has seen samples but no label, so it knows no class to name. "
                "Let it learn some with labels first (POST /ingest of a service); outliers can be "
                "asked for already (POST /outliers)."
            )
        probabilities = self._named(as_float32(asked_of, self.model.density.device), x, joint)
        rate = self.false_positive_rate if unknown_rate is None else unknown_rate
        found = self._strangeness(x, scored) if p_values or rate is not None else None
        if found is None or rate is None:
            score, inliers, unknown = LOG_LIKELIHOOD, log_likelihoods >= self.threshold(), None
        else:
            score = P_VALUE
            inliers = self.usual.inliers(found.typicality, found.p_values, rate)
            unknown = None if unknown_rate is None else ~inliers
        asked = None
        if found is not None and (p_values or unknown_rate is not None):
            asked = found.p_values
        codes = probabilities.argmax(-1)
        return Classification(
            codes, probabilities, log_likelihoods, inliers, asked, unknown, score, len(self.usual)
        )

    def outliers(
        self,
        x: Tensor | SupportsArray | Sequence[object],
        c: float | None = None,
        false_positive_rate: float | None = None,
        *,
        components: bool = False,
    ) -> OutlierScores:
        """Say how typical each sample is of all that was learned.

        Arguments:
            x: Samples, as `Batch.of` takes them, with shape (N, D), in the sender's units.
            c: Deviations below the mean of the log-likelihood at which outliers begin; larger
                finds fewer.
            false_positive_rate: Share of inliers, above 0 and below 1, that may be called
                outliers, by their p-values. With neither: as configured. While too few scores
                are known for p-values, the log-likelihood decides, and `score` says so.
            components: Whether to say which component is most responsible for each sample.

        Raises:
            ShapeMismatch, NonFiniteFeature: The samples cannot be used.
            InvalidRequest: The rate is none, or `c` was given as well.
        """
        if c is not None and false_positive_rate is not None:
            raise InvalidRequest(
                "Both c and false_positive_rate were given, and each says by itself where "
                "outliers begin. Leave one of them out.",
                c=c,
                false_positive_rate=false_positive_rate,
            )
        _check_rate("false_positive_rate", false_positive_rate)
        rate = self.false_positive_rate if c is None else None
        rate = rate if false_positive_rate is None else false_positive_rate
        x = self._prepared(Batch.of(x).features)
        scored = self._score(x)
        found = self._strangeness(x, scored)
        if rate is None or found is None:
            score, threshold = LOG_LIKELIHOOD, self.threshold(c)
            inliers = scored.log_likelihood >= threshold
        else:
            score, threshold = P_VALUE, rate
            inliers = self.usual.inliers(found.typicality, found.p_values, rate)
        p_values, typicality, scales = None, None, None
        if found is not None:
            typicality, p_values, scales = found
        responsible, shares = None, None
        if components:
            shares, responsible = scored.joint.softmax(-1).max(-1)
        return OutlierScores(
            scored.log_likelihood,
            inliers,
            threshold,
            p_values,
            typicality,
            scales,
            score,
            len(self.usual),
            responsible,
            shares,
        )

    def sample(
        self,
        n: int,
        classes: Sequence[Label] | None = None,
        seed: int = 0,
        *,
        least_probability: float | None = None,
        noise: bool = True,
    ) -> Samples:
        """Draw samples; the same version and seed give the same ones.

        Arguments:
            n: How many, an integer, at least 1.
            classes: Wanted classes, integers (of NumPy, too) or strings, each once;
                None for any. Each gets as many samples as any other, or one more, in random order.
            seed: Of the draw.
            least_probability: What the model itself must give a sample's class, 0 to 1; what
                falls short is drawn again, up to a limit, and then kept all the same:
                `Samples.short` tells. None asks for `LEAST_CONFIDENCE` and the other
                components' consent (`core.model.acceptance`) where classes are named, in fewer
                draws.
            noise: Whether to add the noise of single features, where classes are named as much
                of it as `noise_of_a_class` says; without it samples look cleaner and vary less.

        Raises:
            UnknownClass: A class was never seen.
            InvalidLabels: A class is no integer and no string.
            InvalidRequest: n is no integer, or below 1, the classes are no list, or the
                probability is none.
        """
        if not hasattr(n, "__index__"):
            raise InvalidRequest(
                f"n is {n!r:.80}, of type {type(n).__name__}; ask for an integer, at least 1."
            )
        n = n.__index__()
        if n < 1:
            raise InvalidRequest(f"n is {n}; ask for at least 1 sample.", n=n)
        if least_probability is not None and not 0 <= least_probability <= 1:
            raise InvalidRequest(
                f"The least class probability is {least_probability}; it must be from 0 to 1.",
                least_probability=least_probability,
            )
        generator = torch.Generator().manual_seed(seed)
        wanted = None
        if classes is not None:
            wanted = _evenly(torch.tensor(self._codes(classes)), n, generator)
        least, doubt, draws = least_probability, None, PATIENT_DRAWS
        temperature = self.model.readout.temperature
        if least is None:
            least = LEAST_CONFIDENCE if wanted is not None else 0.0
            draws = MAX_DRAWS if temperature == 1 else TEMPERED_DRAWS
            doubt = self.model.density.n_features / FEATURES_PER_DOUBT
        deviations = float(noise)
        if wanted is not None:
            deviations *= noise_of_a_class(temperature)
        drawn = draw(
            self.model,
            n,
            generator,
            wanted,
            least_probability=least,
            doubt=doubt,
            noise=deviations,
            max_draws=draws,
        )
        log_likelihoods = drawn.log_likelihood - self.standardiser.log_volume
        named = drawn.codes.cpu() if wanted is None else wanted
        features = self.standardiser.invert(drawn.x)
        probability, short = drawn.probability, drawn.short
        if self.experts is not None and self.classes:
            # What is said of a sample is what `classify` would say of it.
            probabilities = self._named(
                features, drawn.x, self.model.density.score(drawn.x).joint
            ).cpu()
            named = probabilities[:, : len(self.classes)].argmax(-1) if wanted is None else named
            probability = probabilities[torch.arange(n), named].to(probability)
            short = probability < least
        return Samples(features, named, log_likelihoods, at_most_one(probability), short)

    def _codes(self, classes: Sequence[Label]) -> list[int]:
        InvalidRequest.check_list(classes)
        classes = [*map(plain_label, classes)]
        unknown = [label for label in classes if not self.knows(label)]
        if unknown:
            raise UnknownClass.among(list(unknown), list(self.classes))
        if not classes:
            raise InvalidRequest(
                "The list of classes is empty. Name at least one, or leave it out for any."
            )
        return list(dict.fromkeys(self.classes.index(label) for label in classes))

    def knows(self, label: Label) -> bool:
        """Whether a label is a class of this model."""
        return any(label == known and type(label) is type(known) for known in self.classes)

    # Bytes --------------------------------------------------------------------------------

    def to_bytes(self, metadata: Mapping[str, str]) -> bytes:
        """This snapshot as safetensors, with text of the caller's beside it."""
        readout, density = self.model.readout, self.model.density
        tensors = density.tensors() | readout.tensors()
        facts: dict[str, Any] = {
            "info": asdict(self.info),
            "identity": self.standardiser.identity,
            "density": {"kind": density.kind, **density.facts()},
            "false_positive_rate": self.false_positive_rate,
            "shifts": asdict(self.model.shifts),
            **readout.facts(),
        }
        facts["n_scales"] = self.usual.n_scales
        if self.experts is not None:
            facts["ahead"] = self.ahead
            tensors |= {f"experts_{name}": part for name, part in self.experts.tensors().items()}
        tensors["usual_rows"], tensors["usual_weights"] = self.usual.rows, self.usual.weights
        tensors["shift"], tensors["scale"] = self.standardiser.shift, self.standardiser.scale
        return pack(FORMAT, tensors, {**metadata, "snapshot": json.dumps(facts)})

    @classmethod
    def from_bytes(
        cls, data: bytes, device: torch.device | str = "cpu"
    ) -> tuple[Snapshot, dict[str, str]]:
        """The inverse of `to_bytes`.

        Raises:
            OtherRelease: They are whole, and another release wrote them.
            InvalidCheckpoint: The bytes are no snapshot, or damaged.
        """
        tensors, metadata = unpack(FORMAT, data, device)
        try:
            facts = json.loads(metadata.pop("snapshot"))
            values = facts["info"]
            values["classes"] = tuple(values["classes"])
            values["class_counts"] = tuple(values["class_counts"])
            values["image_shape"] = tuple(values.get("image_shape", ()))
            values["device"] = str(device)
            family = facts["density"]
            density = density_of(family.pop("kind"), tensors, family)
            readout = readout_type(facts).of(tensors, facts)
            shift, scale = tensors["shift"], tensors["scale"]
            zeros = torch.zeros(len(shift), dtype=torch.float64, device=shift.device)
            standardiser = Standardiser(facts["identity"], 0, 0, zeros, zeros, shift, scale)
            info = ModelInfo(**values)
            usual, experts = Typicality.none(), None
            if expert_tensors := _beginning(tensors, "experts_"):
                experts = Rules.read({name: part.cpu() for name, part in expert_tensors.items()})
            n_scales = facts.get("n_scales", 0 if standardiser.identity else None)
            # An earlier release had other conformity scores of tables.
            if "usual_rows" in tensors and n_scales is not None:
                rows, weights = tensors["usual_rows"], tensors["usual_weights"]
                usual = Typicality(rows.cpu(), weights.cpu(), int(n_scales), len(shift))
            rate = facts.get("false_positive_rate")
            shifted = facts.get("shifts", {"pixels": 0, "image": None})
            image = shifted["image"]
            shifts = Shifts(shifted["pixels"], None if image is None else tuple(image))
        except (KeyError, TypeError, ValueError) as error:
            raise OtherRelease(
                f"The snapshot lacks or garbles {error}; it was written by another release. "
                f"Let the trainer publish a new one."
            ) from error
        model = Model(density, readout, shifts)
        ahead = tuple(facts.get("ahead", ()))
        return cls(info, model, standardiser, usual, rate, experts, ahead), metadata


def _beginning(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Tensors whose names begin so, without that."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def _evenly(codes: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Each code as often as any other, or once more, in random order, with shape (n,).

    Arguments:
        codes: With shape (C,); chance decides which of them come once more.
        n: How many to return.
        generator: Source of randomness.

    Example:
        >>> _evenly(torch.tensor([4, 7]), 6, torch.Generator()).bincount().tolist()
        [0, 0, 0, 0, 3, 0, 0, 3]
    """
    order = torch.randperm(len(codes), generator=generator)
    turns = order[torch.arange(n) % len(codes)]
    return codes[turns[torch.randperm(n, generator=generator)]]


def _check_rate(name: str, rate: float | None) -> None:
    """Raise `InvalidRequest` for a rate that is no share."""
    if rate is not None and not 0 < rate < 1:
        raise InvalidRequest(
            f"`{name}` is {rate}; it must be above 0 and below 1. Choose 0.01 to call about one "
            f"in a hundred usual samples strange.",
            parameter=name,
            got=rate,
        )

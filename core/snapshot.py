"""What answers requests: a model at rest, in the sender's units, read-only.

A snapshot is a value. Taking a newer one is one assignment; whoever holds the older
one can finish its request with it.

Throughout: N samples, D features, C classes; log-likelihoods in nats, in the sender's units.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from core.batch import Batch, Label
from core.density.diagonal import Mixture, NaturalForm, log_joint, log_sum_exp
from core.errors import InvalidCheckpoint, InvalidRequest, ModelNotReady, UnknownClass
from core.model import Model
from core.readout import LinearReadout, PosteriorReadout
from core.standardiser import Standardiser
from core.tensors import pack, unpack

FORMAT = "gmr-snapshot-1"

LEAST_CONFIDENCE = 0.9
"""A sample drawn for a class is drawn again while the model itself is less sure of it."""

MOST_TRIES = 8
"""Times a sample is drawn before the last draw is kept as it is."""


class Classification(NamedTuple):
    """Answers to "which class?"."""

    codes: Tensor  # (N,) int64, index into the snapshot's classes
    probabilities: Tensor  # (N, C) rows sum to one
    log_likelihoods: Tensor  # (N,)
    inliers: Tensor  # (N,) bool, with the service's c


class OutlierScores(NamedTuple):
    """Answers to "how typical?"."""

    log_likelihoods: Tensor  # (N,)
    inliers: Tensor  # (N,) bool
    threshold: float  # nats; a sample below it is an outlier


class Samples(NamedTuple):
    """Draws from the model."""

    features: Tensor  # (n, D)
    codes: Tensor  # (n,) int64, index into the snapshot's classes; -1 while none is known
    log_likelihoods: Tensor  # (n,)


@dataclass(frozen=True)
class ModelInfo:
    """What there is to say about a model without asking it anything."""

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
    """

    info: ModelInfo
    model: Model
    standardiser: Standardiser

    @property
    def version(self) -> int:
        """Names this model for ever."""
        return self.info.model_version

    @property
    def classes(self) -> tuple[Label, ...]:
        """Labels in order of discovery; codes index these."""
        return self.info.classes

    @cached_property
    def _form(self) -> NaturalForm:
        return self.model.natural_form()

    def _joint(self, x: Tensor) -> Tensor:
        # Checked as the model will see it: 1e300 is finite until it becomes a float32.
        x = x.to(self.model.deviations.device, torch.float32)
        Batch(x).check(self.info.features)
        return log_joint(self._form, self.standardiser.apply(x))

    def _log_likelihood(self, joint: Tensor) -> Tensor:
        return log_sum_exp(joint) - self.standardiser.log_volume

    def threshold(self, c: float | None = None) -> float:
        """Log-likelihood below which a sample is an outlier: mean - c * deviation (the paper)."""
        deviations = self.info.outlier_c if c is None else c
        return self.info.log_likelihood_mean - deviations * self.info.log_likelihood_deviation

    def classify(self, x: Tensor) -> Classification:
        """Name the most probable class of each sample.

        Arguments:
            x: Samples, with shape (N, D), in the sender's units.

        Raises:
            ShapeMismatch, NonFiniteFeature: The samples cannot be used.
            ModelNotReady: No label was ever seen.
        """
        joint = self._joint(x)
        if not self.classes:
            raise ModelNotReady(
                "The model has seen samples but no label, so it knows no class to name. "
                "Send labelled samples to POST /ingest first; POST /outliers works already."
            )
        probabilities = self.model.readout.class_probabilities(joint)
        likelihoods = self._log_likelihood(joint)
        inliers = likelihoods >= self.threshold()
        return Classification(probabilities.argmax(-1), probabilities, likelihoods, inliers)

    def outliers(self, x: Tensor, c: float | None = None) -> OutlierScores:
        """Say how typical each sample is of all that was learned.

        Arguments:
            x: Samples, with shape (N, D), in the sender's units.
            c: Deviations below the mean; larger finds fewer outliers. None: the configured one.
        """
        likelihoods = self._log_likelihood(self._joint(x))
        threshold = self.threshold(c)
        return OutlierScores(likelihoods, likelihoods >= threshold, threshold)

    def sample(self, n: int, classes: Sequence[Label] | None = None, seed: int = 0) -> Samples:
        """Draw samples; the same version and seed give the same ones.

        Arguments:
            n: How many, at least 1.
            classes: Wanted classes, each sample's drawn evenly from these; None for any.
            seed: Of the draw.

        Raises:
            UnknownClass: A class was never seen.
            InvalidRequest: n is below 1.
        """
        if n < 1:
            raise InvalidRequest(f"n is {n}; ask for at least 1 sample.", n=n)
        generator = torch.Generator().manual_seed(seed)
        wanted = None
        if classes is not None:
            codes = torch.tensor(self._codes(classes))
            wanted = codes[torch.randint(len(codes), (n,), generator=generator)]
        components = self.model.sample_components(wanted, n, generator)
        x = self.model.sample(components, generator)
        joint = log_joint(self._form, x)
        if wanted is not None:
            x, joint = self._redraw(wanted, x, joint, generator)
        codes = torch.full((n,), -1)
        if wanted is not None:
            codes = wanted
        elif self.classes:
            codes = self.model.readout.class_probabilities(joint).argmax(-1).cpu()
        return Samples(self.standardiser.invert(x), codes, self._log_likelihood(joint))

    def _redraw(
        self, wanted: Tensor, x: Tensor, joint: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Draw again what the model itself would not call the wanted class."""
        rows = torch.arange(len(wanted))
        for _ in range(MOST_TRIES - 1):
            sure = self.model.readout.class_probabilities(joint).cpu()[rows, wanted]
            weak = (sure < LEAST_CONFIDENCE).nonzero()[:, 0]
            if len(weak) == 0:
                break
            components = self.model.sample_components(wanted[weak], len(weak), generator)
            fresh = self.model.sample(components, generator)
            fresh_joint = log_joint(self._form, fresh)
            # Of two weak draws the surer one stays.
            better = self.model.readout.class_probabilities(fresh_joint).cpu()
            improved = better[torch.arange(len(weak)), wanted[weak]] > sure[weak]
            places = weak[improved].to(x.device)
            x[places] = fresh[improved.to(x.device)]
            joint[places] = fresh_joint[improved.to(x.device)]
        return x, joint

    def _codes(self, classes: Sequence[Label]) -> list[int]:
        unknown = [label for label in classes if not self.knows(label)]
        if unknown:
            raise UnknownClass.among(list(unknown), list(self.classes))
        if not classes:
            raise InvalidRequest(
                "The list of classes is empty. Name at least one, or leave it out for any."
            )
        return [self.classes.index(label) for label in classes]

    def knows(self, label: Label) -> bool:
        """Whether a label is a class of this model."""
        return any(label == known and type(label) is type(known) for known in self.classes)

    # Bytes --------------------------------------------------------------------------------

    def to_bytes(self, metadata: Mapping[str, str]) -> bytes:
        """This snapshot as safetensors, with text of the caller's beside it."""
        readout = self.model.readout
        tensors = dict(self.model.mixture._asdict(), deviations=self.model.deviations)
        facts: dict[str, Any] = {"info": asdict(self.info), "identity": self.standardiser.identity}
        if isinstance(readout, PosteriorReadout):
            tensors["component_classes"] = readout.component_classes
            facts["temperature"] = readout.temperature
        else:
            tensors["readout_weight"], tensors["readout_bias"] = readout.weight, readout.bias
            facts["top"] = readout.top
        tensors["shift"], tensors["scale"] = self.standardiser.shift, self.standardiser.scale
        return pack(FORMAT, tensors, {**metadata, "snapshot": json.dumps(facts)})

    @classmethod
    def from_bytes(
        cls, data: bytes, device: torch.device | str = "cpu"
    ) -> tuple[Snapshot, dict[str, str]]:
        """The inverse of `to_bytes`.

        Raises:
            InvalidCheckpoint: The bytes are no snapshot, or damaged.
        """
        tensors, metadata = unpack(FORMAT, data, device)
        try:
            facts = json.loads(metadata.pop("snapshot"))
            values = facts["info"]
            values["classes"] = tuple(values["classes"])
            values["class_counts"] = tuple(values["class_counts"])
            values["device"] = str(device)
            mixture = Mixture(tensors["log_weights"], tensors["means"], tensors["precision_root"])
            readout: PosteriorReadout | LinearReadout
            if "temperature" in facts:
                readout = PosteriorReadout(tensors["component_classes"], facts["temperature"])
            else:
                readout = LinearReadout(
                    tensors["readout_weight"], tensors["readout_bias"], facts["top"]
                )
            shift, scale = tensors["shift"], tensors["scale"]
            zeros = torch.zeros(len(shift), dtype=torch.float64, device=shift.device)
            standardiser = Standardiser(facts["identity"], 0, 0, zeros, zeros, shift, scale)
            info = ModelInfo(**values)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidCheckpoint(
                f"The snapshot lacks or garbles {error}; it was written by another release. "
                f"Let the trainer publish a new one."
            ) from error
        return cls(info, Model(mixture, tensors["deviations"], readout), standardiser), metadata

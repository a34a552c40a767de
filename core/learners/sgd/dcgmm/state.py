"""Everything preset `dcgmm` has learned, as values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from core.class_merge import ClassMerge
from core.density.deep.density import DeepDensity, Layer
from core.density.deep.folding import Folding
from core.density.diagonal.annealing import Annealing
from core.density.diagonal.gradient import Parameters
from core.model.model import Model
from core.model.readout import LinearReadout
from core.running import Running


@dataclass(frozen=True, eq=False)
class LayerState:
    """One layer as it stands.

    Arguments:
        folding: How it looks at the map below.
        parameters: Of its mixture.
        precision_limit: Largest precision root, with shape (d,). Follows a change of units;
            the next step brings it back to where the settings want it.
        annealing: Where its annealing stands.
    """

    folding: Folding
    parameters: Parameters
    precision_limit: Tensor
    annealing: Annealing

    @property
    def raw_variances(self) -> Tensor:
        """Variances (K, d) without the floor, which is in every one of them and in no data."""
        floor = self.precision_limit.square().reciprocal()
        return (self.parameters.precision_root.square().reciprocal() - floor).clamp_min(0)

    @property
    def at_rest(self) -> Layer:
        """The same as it is served."""
        return Layer(self.folding, self.parameters.mixture, self.raw_variances.sqrt())


@dataclass(frozen=True, eq=False)
class DeepGenerator:
    """The frozen generator of the last boundary.

    What it draws are the patches of an image side by side, not yet averaged where they
    overlap: the mean of patches looks like no patch of the stream, so that learning from
    finished images teaches the first layer the blur of the generator.

    Arguments:
        density: Draws and scores, patches apart.
        readout: Names the classes of what is drawn.
        threshold: In nats; a sample below it is atypical. Minus infinity accepts all.
    """

    density: DeepDensity
    readout: LinearReadout
    threshold: float

    def with_merged_classes(self, merge: ClassMerge) -> Self:
        """The same, for which two classes are one."""
        return replace(self, readout=self.readout.with_merged_classes(merge))

    @property
    def model(self) -> Model:
        """The same as a model."""
        return Model(self.density, self.readout)


@dataclass(frozen=True, eq=False)
class DcgmmState:
    """Everything there is to know.

    Arguments:
        layers: From the image upwards.
        weight: The classifier's, with shape (K, C).
        bias: The classifier's, with shape (C,).
        volume: See `DeepDensity`.
        steps: Minibatches learned.
        log_likelihood: Log-likelihood of what was learned, generated samples included, nats.
        samples: Real samples of the present sub-task.
        earlier_samples: Real samples of all earlier sub-tasks.
        sub_task: 0 for the first.
        generator: The model of before the last boundary, if there was one.
    """

    layers: tuple[LayerState, ...]
    weight: Tensor
    bias: Tensor
    volume: float
    steps: int
    log_likelihood: Running
    samples: int
    earlier_samples: int
    sub_task: int
    generator: DeepGenerator | None

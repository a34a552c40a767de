"""The class of a sample: the mixture's answer and that of the experts beside it.

The engine's part for `core.experts`, which has the experts. They hear a label when it comes, even
while a change is suspected and the mixture waits: an expert that was wrong is not believed for
long. So a class can be answered before the mixture has learned it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from core.batch import Batch, Label, codes_among, distinct, new_labels
from core.config import EngineConfig
from core.density.mixture import responsibilities
from core.engine.state import EngineState
from core.experts.panel import Advice, Panel
from core.learners.learner import Learner, Scores
from core.memory.retention import Named, Served


@dataclass(frozen=True)
class Naming:
    """Asks the experts, and tells them.

    Arguments:
        config: Says whether there are any.
        learner: The model's way of learning.
    """

    config: EngineConfig
    learner: Learner[Any]

    def first(self, n_features: int, images: bool) -> Panel | None:
        """The experts before any sample."""
        return Panel.start(n_features) if self.config.advised and not images else None

    def labels(self, state: EngineState) -> tuple[Label, ...]:
        """Every class that can be answered: those of the model, then those that wait for it."""
        return state.model.classes if state.model.panel is None else self.panel(state).labels

    def panel(self, state: EngineState) -> Panel:
        """The experts, by the classes that can be answered.

        What was heard of a class is forgotten if its samples turned out to be outliers.
        """
        assert state.model.panel is not None
        labels = state.model.classes
        if len(state.model.panel.labels) > len(labels):
            undecided = state.pending.undecided
            wait = {
                distinct(label) for batch in undecided for label in state.model.new_labels(batch)
            }
            labels += tuple(label for label in state.model.panel.labels if distinct(label) in wait)
        return state.model.panel.of_classes(labels)

    def probabilities(
        self, state: EngineState, x: Tensor, scores: Scores
    ) -> tuple[Tensor, Advice | None]:
        """Probabilities of the classes in `labels`, with shape (N, C), and what the experts said.

        Arguments:
            x: Samples in the sender's units, with shape (N, D).
            scores: What the mixture says of them.
        """
        mixture = self.learner.readout(state.model.learner).class_probabilities(scores.joint)
        if state.model.panel is None:
            return mixture, None
        panel = self.panel(state)
        advice = panel.rules.advice(x, mixture, len(panel.labels))
        return advice.probabilities, advice

    def served(self, state: EngineState) -> Served | None:
        """What the experts say beside the mixture, as `Snapshot.classify`; None without any."""
        if state.model.panel is None:
            return None
        panel = self.panel(state)
        rules, n_classes = panel.rules, len(panel.labels)
        right = panel.new_names.right(n_classes)

        def named(x: Tensor, mixture: Tensor) -> Named:
            advice = rules.advice(x, mixture, n_classes)
            return Named(advice.probabilities, right)

        return named

    def confidence(
        self, state: EngineState, scores: Scores, probabilities: Tensor, advice: Advice | None
    ) -> tuple[Tensor, Tensor]:
        """Confidence in the classes that are named, and what lies on components without a name.

        A component that no label named gives each of C classes the same, and so tells none from
        another. Its part is taken off the probability of the class that was named.

        Arguments:
            scores: What the mixture says of N samples.
            probabilities: Of the classes, with shape (N, C).
            advice: What the experts said beside it.

        Returns:
            Probabilities and shares of responsibility, 0 to 1, with shape (N,) each, float64, on
            the CPU.
        """
        top = probabilities.amax(-1).cpu().double()
        model = state.model
        if model.samples_seen <= sum(model.class_counts):
            # Where every sample that was learned had a label, all components have names.
            return top, torch.zeros_like(top)
        readout = self.learner.readout(model.learner)
        if readout.kinds is None or readout.n_classes < 2:
            return top, torch.zeros_like(top)
        unnamed, joint = readout.kinds[:, -1], scores.joint
        crisp = responsibilities(joint) @ unnamed
        tempered = responsibilities(joint, readout.temperature) @ unnamed
        unnamed_shares = torch.stack([crisp, tempered]).cpu().double().clamp(0, 1)
        even = unnamed_shares[1] if advice is None else unnamed_shares[1] * float(advice.weights[0])
        even = even.clamp(max=1 - 1e-6)
        named = (top - even / readout.n_classes) / (1 - even)
        return named.clamp(0, 1), unnamed_shares[0]

    def taught(self, state: EngineState, batch: Batch, advice: Advice | None) -> EngineState:
        """Tell the experts labels that have come.

        Arguments:
            batch: Of N samples; those without a label teach nothing.
            advice: What was said of them before; None: nobody was asked.
        """
        if state.model.panel is None or batch.codes is None:
            return state
        panel = self.panel(state)
        new = new_labels(batch, panel.labels)
        panel = panel.of_classes((*panel.labels, *new))
        codes = codes_among(batch, panel.labels)
        return state.with_model(panel=panel.taught(batch.features, codes, advice))

"""All experts of a stream and their weights, as a value; and a copy that learns no more.

Throughout: E experts, the mixture first; N samples, D features, C classes.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from core.batch import UNLABELLED, Label, distinct
from core.class_merge import ClassMerge
from core.experts import forest, gaussians, neighbours, share
from core.experts.features import joint
from core.experts.forest import ForestRules, Forests
from core.experts.gaussians import AnyRules, Gaussians
from core.experts.least_squares import LeastSquares, LinearRules
from core.experts.neighbours import NOBODY, NeighbourRules, Neighbours
from core.experts.new_names import NewNames
from core.experts.opinions import completed
from core.experts.sketch import SIZE, Sketch
from core.standardiser import CLIP, LEARNED_RANGE, Standardiser

MOST_FEATURES = SIZE
"""Features up to which experts learn them as they are; beyond, a sketch: products are too dear."""

MOST_FOR_ALL = 256
"""Features up to which all of them learn. With more only Gaussians do, at horizons at which they
can tell that many apart; the others repeat what these and the mixture say."""

JOINT_HORIZONS = (100.0, float("inf"))
"""Samples, for least squares."""

HORIZONS = (*gaussians.HORIZONS, *JOINT_HORIZONS, *forest.REACHES, *neighbours.HORIZONS)
"""Of all experts but the mixture, in their order."""

LASTING = torch.tensor(HORIZONS).isinf()
"""Which of those never fade, with shape (E - 1,), bool."""

LASTING_OF_MANY = LASTING & (torch.arange(len(HORIZONS)) < len(gaussians.HORIZONS))
"""The same among those that learn many features: see `MOST_FOR_ALL`."""

FEWEST_ROWS = 32
"""Samples that are added up at a time: solving for each one, or copying trees, would be dear."""

ROWS_PER_FEATURE = 1 / 4
"""The same where there are many features, for each of them: solving is dearer then."""

FIRST_ROWS = 8
ROWS_PER_LABEL = 1 / 4
"""The same at first where only Gaussians learn, and later for each sample that they have learned:
until these are as many as features, solving is no dearer than waiting."""

FEWEST_QUICK_ROWS = 4
"""The same for Gaussians, which are cheaper, and quicker to learn."""

MOST_PIECES = 8
"""Pieces in which the labels of a batch are heard, at most, and parts of a piece whose labels are a
surprise: each is named anew before."""

SMALLEST_PART = 8
"""Samples of such a part, about, or more: solving for fewer would be dear."""

SURPRISE = 3.0
"""Standard errors by which hits fall short of what was expected where labels are a surprise."""

ADDED_VARIANCE = 1.0
"""Of hits, beyond that by chance: where all were certain, one that is wrong says nothing."""

DEFERENCE = 0.3
"""Weight of the mixture, at least, right after it was told that labels mean something else."""

LAZINESS = 0.1
"""Part of all samples that may be new before it is asked whether the scale still suits them."""

MOST_STRETCH = 2.0
"""Times by which a feature's deviation may leave its scale, or deviations by which its mean may,
before the scale follows: waves that were learned do not stretch with it."""


NEIGHBOURS = ("places", "place_codes", "place_masses", "newest", "since", "neighbours_known")
"""Names of the tensors of `NeighbourRules`."""


def fewest_rows(n_features: int) -> int:
    """Samples that are added up at a time.

    Example:
        >>> fewest_rows(10), fewest_rows(256)
        (32, 64)
    """
    return max(FEWEST_ROWS, round(ROWS_PER_FEATURE * n_features))


@dataclass(frozen=True, eq=False)
class Advice:
    """The experts' opinions on a batch before it is learned.

    Arguments:
        opinions: Probabilities of classes, with shape (E, N, C), float64.
        weights: With shape (E,), float64.
        mixture: What the mixture says whatever goes by another name, with shape (N, C), float64.
        called: The class that it and experts of which nothing fades find likeliest then, with shape
            (N,), int64.
    """

    opinions: Tensor
    weights: Tensor
    mixture: Tensor
    called: Tensor

    def of(self, rows: Tensor) -> Advice:
        """The opinions on some of the samples, with shape (M,), int64."""
        return Advice(self.opinions[:, rows], self.weights, self.mixture[rows], self.called[rows])

    @property
    def probabilities(self) -> Tensor:
        """Class probabilities by all experts together, with shape (N, C); rows sum to one."""
        return (self.weights @ self.opinions.flatten(1)).view(self.opinions.shape[1:])

    def surprised(self, codes: Tensor) -> bool:
        """Whether fewer labels were foretold than expected, beyond chance.

        Arguments:
            codes: Places of the labels among classes, with shape (N,), int64; C and above for
                classes about which nobody was asked.
        """
        expected, named = self.probabilities.max(1)
        hits = named == codes
        variance = (expected * (1 - expected)).sum() + ADDED_VARIANCE
        return float((expected - hits.double()).sum()) > SURPRISE * math.sqrt(float(variance))


NO_NAMES = torch.zeros(0, dtype=torch.int64)
"""Of no classes."""


@dataclass(frozen=True, eq=False)
class Rules:
    """A copy of the experts that learns no more.

    Arguments:
        shift: What is subtracted from features in the sender's units, with shape (D,).
        scale: By what they are divided then, with shape (D,), of the sign of `Panel.orientation`.
        weights: Of all experts, with shape (E,).
        gaussians: See `core.experts.gaussians`.
        joint: Least squares.
        forests: See `ForestRules`.
        neighbours: See `NeighbourRules`.
        sketch: What samples of more than `MOST_FEATURES` go through first: then D is its size.
        replaces: Of each of the first classes the one that it replaces (`NewNames`), int64, with
            shape (C,); -1 of none.
    """

    shift: Tensor
    scale: Tensor
    weights: Tensor
    gaussians: AnyRules
    joint: LinearRules
    forests: ForestRules
    neighbours: NeighbourRules
    sketch: Sketch | None = None
    replaces: Tensor = NO_NAMES

    def advice(self, x: Tensor, mixture: Tensor, n_classes: int | None = None) -> Advice:
        """What every expert says of samples.

        An expert need not know all classes. Others fill in: for an expert of which nothing fades
        the mixture; for one of which something fades the mixture and all experts of which nothing
        does, weighed. There are two cases:

        1. The others find a class likeliest that the expert does not know: it says what they say.
        2. Else it shares out among the classes that it knows what the others give these together;
           of the other classes it says what they say.

        Of classes that the mixture has yet to learn, the experts of which nothing fades say how
        likely they are. What anybody says of a class that goes by another name (`NewNames`) is said
        of that name.

        Arguments:
            x: Samples in the sender's units, with shape (N, D); before the sketch, if any.
            mixture: Probabilities of classes by the mixture; rows sum to one. It may know the
                first ones only.
            n_classes: C; as many as the mixture knows, unless told.
        """
        x = x.cpu().double() if self.sketch is None else self.sketch.of(x.cpu())
        x = ((x - self.shift) / self.scale).clamp_(-CLIP, CLIP)
        drawn = self.joint.probabilities(joint(x.shape[1]).of(x))
        parts = (
            _of_all(len(gaussians.HORIZONS), self.gaussians.probabilities(x), self.gaussians.known),
            _of_all(len(JOINT_HORIZONS), drawn, self.joint.known),
            (self.forests.probabilities(x), self.forests.known),
            (self.neighbours.probabilities(x), self.neighbours.known),
        )
        base, n_classes = mixture.cpu().double(), n_classes or mixture.shape[1]
        lasting = LASTING if x.shape[1] <= MOST_FOR_ALL else LASTING_OF_MANY
        opinions, own, called = completed(
            parts, base, self.weights, lasting, n_classes, self.replaces
        )
        return Advice(opinions, self.weights, own, called)

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor, by name."""
        sketch = {} if self.sketch is None else {"sketch": self.sketch.scale}
        return {
            **sketch,
            "shift": self.shift,
            "scale": self.scale,
            "weights": self.weights,
            **gaussians.tensors_of(self.gaussians),
            "joint": self.joint.solution,
            "joint_known": self.joint.known,
            "features": self.forests.features,
            "thresholds": self.forests.thresholds,
            "children": self.forests.children,
            "values": self.forests.values,
            "forests_known": self.forests.known,
            **dict(zip(NEIGHBOURS, self.neighbours.tensors(), strict=True)),
            "new_names": self.replaces,
        }

    @classmethod
    def read(cls, tensors: Mapping[str, Tensor]) -> Rules:
        """The inverse of `tensors`.

        Raises:
            KeyError: One is missing.
        """
        trees = ("features", "thresholds", "children", "values", "forests_known")
        weights = tensors["weights"]
        if NEIGHBOURS[0] in tensors:
            near = NeighbourRules.of([tensors[name] for name in NEIGHBOURS])
        else:  # written by an earlier release
            near = NOBODY.rules()
            weights = torch.nn.functional.pad(weights, (0, len(neighbours.HORIZONS)))
        return cls(
            tensors["shift"],
            tensors["scale"],
            weights,
            gaussians.rules_of(tensors),
            LinearRules(tensors["joint"], tensors["joint_known"]),
            ForestRules(*(tensors[name] for name in trees)),
            near,
            Sketch(tensors["sketch"]) if "sketch" in tensors else None,
            tensors.get("new_names", NO_NAMES),  # not written by earlier releases
        )


NO_MIX = torch.zeros(0, dtype=torch.float64)
"""Of a panel that an earlier release has written."""


@dataclass(frozen=True, eq=False)
class Panel:
    """Everything that the experts have learned.

    Arguments:
        standardiser: Of the features of all samples so far. It rests once it has seen enough.
        orientation: Sign by which each feature is multiplied, with shape (D,); 0 while no sample
            differed. By the first one that does, so that a feature may as well come negative.
        weights: Of all experts, the mixture first, by whoever is best just now, with shape (E,),
            float64.
        gaussians: See there.
        joint: Least squares.
        forests: Decision trees.
        rows: Labelled samples that wait to be added up, standardised, with shape (M, D), float64.
        codes: Their classes, with shape (M,), int64.
        told: How many of these the Gaussians have learned already: the first ones.
        scaled_at: Samples after which the scale was last asked for.
        labels: The classes, in the order of their columns: those of the model first, then those
            that it has yet to learn.
        neighbours: Micro-clusters.
        mix: Weights as well, by which experts are best together: see `core.experts.share`.
        sketch: Of more than `MOST_FEATURES`; then D is its size. While its scale is not known,
            rows wait in the sender's units.
        new_names: Tells which classes go by another name.
    """

    standardiser: Standardiser
    orientation: Tensor
    weights: Tensor
    gaussians: Gaussians
    joint: LeastSquares
    forests: Forests
    rows: Tensor
    codes: Tensor
    told: int = 0
    scaled_at: int = 0
    labels: tuple[Label, ...] = ()
    neighbours: Neighbours = NOBODY
    mix: Tensor = NO_MIX
    sketch: Sketch | None = None
    new_names: NewNames = field(default_factory=NewNames.start)

    @classmethod
    def start(cls, n_features: int) -> Panel:
        """Before any sample."""
        if n_features > MOST_FEATURES:
            rows = torch.zeros(0, n_features, dtype=torch.float64)
            sketch = Sketch.start(n_features)
            return replace(cls.start(SIZE), sketch=sketch, rows=rows)
        zeros = torch.zeros(n_features, dtype=torch.float64)
        unseen = Standardiser(False, 0, 0, zeros, zeros, zeros, zeros + 1)
        many = n_features > MOST_FOR_ALL
        even = torch.full((1 + len(HORIZONS),), 1 / (1 + len(HORIZONS)), dtype=torch.float64)
        return cls(
            unseen,
            zeros,
            even,
            Gaussians.start(n_features, len(gaussians.HORIZONS) - many),
            LeastSquares.start(0 if many else len(JOINT_HORIZONS), joint(n_features).size),
            Forests.start(),
            torch.zeros(0, n_features, dtype=torch.float64),
            torch.zeros(0, dtype=torch.int64),
            neighbours=Neighbours.start(n_features),
            mix=even,
        )

    def of_today(self) -> Panel:
        """The same, with what an earlier release did not have: some sums, and newer experts."""
        mix = self.mix if len(self.mix) else self.weights
        panel = replace(self, gaussians=self.gaussians.of_today(), mix=mix)
        if self.neighbours is not NOBODY:
            return panel
        new = self.weights.new_full((len(neighbours.HORIZONS),), share.SHARE / len(self.weights))
        weights = torch.cat([self.weights, new])
        weights = weights / weights.sum()
        begun = Neighbours.start(len(self.orientation)).grown(len(self.labels))
        return replace(panel, weights=weights, mix=weights, neighbours=begun)

    @cached_property
    def rules(self) -> Rules:
        """A copy that learns no more."""
        return Rules(
            self.standardiser.shift,
            self.standardiser.scale * _signs(self.orientation),
            (self.weights + self.mix) / 2,
            self.gaussians.rules,
            self.joint.rules(JOINT_HORIZONS[: len(self.joint.mass)]),
            self.forests.rules(),
            self.neighbours.rules(),
            self.sketch,
            self.new_names.replaces,
        )

    def of_classes(self, labels: tuple[Label, ...]) -> Panel:
        """Change to other classes, or another order; classes left out are forgotten.

        Arguments:
            labels: All different, C of them; of the new ones nothing was heard so far.
        """
        if [*map(distinct, labels)] == [*map(distinct, self.labels)]:
            return self
        places = {distinct(label): code for code, label in enumerate(self.labels)}
        found = [places.get(distinct(label), UNLABELLED) for label in labels]
        columns = torch.tensor(found, dtype=torch.long)  # Also of no class at all.
        kept = (columns >= 0).nonzero()[:, 0]
        table = torch.full((len(self.labels),), UNLABELLED)
        table[columns[kept]] = kept
        codes = table[self.codes]
        stay = codes >= 0
        return replace(
            self,
            labels=labels,
            gaussians=self.gaussians.of_classes(columns),
            joint=self.joint.of_classes(columns),
            forests=self.forests.of_classes(columns),
            neighbours=self.neighbours.of_classes(columns),
            new_names=self.new_names.of_classes(columns),
            rows=self.rows[stay],
            codes=codes[stay],
            told=int(stay[: self.told].sum()),
        )

    def with_merged_classes(self, gone: Label, into: Label) -> Panel:
        """Two classes in one; the same where nobody has heard of the first.

        Arguments:
            gone: Label of the class that becomes part of the other.
            into: Label of the other.
        """
        labels = [*map(distinct, self.labels)]
        if distinct(gone) not in labels:
            return self
        code = labels.index(distinct(gone))
        if distinct(into) not in labels:
            return replace(self, labels=(*self.labels[:code], into, *self.labels[code + 1 :]))
        merge = ClassMerge(code, labels.index(distinct(into)))
        return replace(
            self,
            labels=(*self.labels[:code], *self.labels[code + 1 :]),
            gaussians=self.gaussians.with_merged_classes(merge),
            joint=self.joint.with_merged_classes(merge),
            forests=self.forests.with_merged_classes(merge),
            neighbours=self.neighbours.with_merged_classes(merge),
            new_names=self.new_names.with_merged_classes(merge),
            codes=merge.codes(self.codes),
        )

    def taught(self, x: Tensor, codes: Tensor, advice: Advice | None = None) -> Panel:
        """Weigh the experts by labelled samples, and let them learn these, piece by piece.

        A batch is named before any of its labels is known. Labels say more in their order: an
        expert that has learned from the first ones what is new is right about the next, and so is
        believed when the next batch comes. Judged by the whole batch, all would be as wrong. Where
        the labels of a piece are a surprise, it is parted further: they may be the last of a batch.

        Arguments:
            x: In the sender's units, with shape (N, D).
            codes: Places among `labels`, with shape (N,), int64; below 0 for unlabelled samples,
                which are left out.
            advice: What was said of them before, about the first of the classes; None: nobody was
                asked, and nobody is judged.
        """
        named = (codes >= 0).nonzero()[:, 0]
        x, codes, panel = x.cpu()[named], codes[named], self
        fewest = fewest_rows(self._n_features)
        pieces = min(max(len(named) // fewest, 1), MOST_PIECES)
        part = max(SMALLEST_PART * fewest // FEWEST_ROWS, -(-len(named) // (pieces * MOST_PIECES)))
        queue = deque(torch.arange(len(named)).tensor_split(pieces))
        while queue:
            rows = queue.popleft()
            if advice is not None:
                piece_advice = advice.of(named[rows])
                if panel is not self:
                    piece_advice = panel.rules.advice(
                        x[rows], piece_advice.mixture, len(self.labels)
                    )
                # A mix is sure of less, and so is surprised by less.
                best = replace(piece_advice, weights=panel.weights)
                if len(rows) > part and best.surprised(codes[rows]):
                    queue.extendleft(reversed(rows.tensor_split(-(-len(rows) // part))))
                    continue
                heard = codes[rows] < piece_advice.opinions.shape[2]
                panel = panel.judged(piece_advice, torch.where(heard, codes[rows], UNLABELLED))
                names = panel.new_names.grown(max(len(self.labels), piece_advice.opinions.shape[2]))
                panel = replace(panel, new_names=names.counted(piece_advice.called, codes[rows]))
            panel = panel.learned(x[rows], codes[rows], len(self.labels), self)
        return panel

    def judged(self, advice: Advice, codes: Tensor) -> Panel:
        """Weigh the experts anew, after labels came.

        Arguments:
            advice: What was said of N samples before.
            codes: Their classes, with shape (N,), int64; below 0 where there is none to judge by.
        """
        rows = (codes >= 0).nonzero()[:, 0]
        if not len(rows):
            return self
        probabilities = advice.opinions[:, rows, codes[rows]]
        probabilities = (1 - share.DOUBT) * probabilities + share.DOUBT / advice.opinions.shape[2]
        return replace(
            self,
            weights=share.shared(self.weights, probabilities),
            mix=share.mixed(self.mix, probabilities),
        )

    def deferring(self) -> Panel:
        """Give the mixture weight: it was told at once what others hear by and by."""
        return replace(
            self,
            weights=_deferring(self.weights),
            mix=_deferring(self.mix),
            new_names=NewNames.start(len(self.labels)),
        )

    def in_new_sub_task(self) -> Panel:
        """Without raw samples, and without a share of what the mixture had yet to learn."""
        return replace(self.without_raw(), new_names=self.new_names.in_new_sub_task())

    def learned(
        self, x: Tensor, codes: Tensor, n_classes: int, before: Panel | None = None
    ) -> Panel:
        """Learn labelled samples, in stream order.

        Arguments:
            x: In the sender's units, with shape (N, D).
            codes: Classes, with shape (N,), int64; below 0 for unlabelled, which are left out.
            n_classes: C.
            before: The panel that this one has grown from, which stays in use where this one does
                not: trees that the two do not share change where they are.
        """
        named = codes >= 0
        x, codes = x.cpu().double()[named], codes[named]
        if not len(x):
            return self
        panel = self
        if self.sketch is not None:
            panel, x, codes = self._sketched(self.sketch, x, codes)
            if not len(x):
                return panel
        panel = panel._scaled(x)
        x = panel.standardiser.apply(x).clamp_(*LEARNED_RANGE) * _signs(panel.orientation)
        panel = replace(
            panel, rows=torch.cat([panel.rows, x]), codes=torch.cat([panel.codes, codes])
        )
        fewest = self._fewest_rows
        if len(panel.rows) >= fewest:
            mine = before is not None and panel.forests is not before.forests
            return panel._added_up(n_classes, trees_in_place=mine)
        quick = FEWEST_QUICK_ROWS * fewest // FEWEST_ROWS if panel._all_learn else fewest
        return panel._told(n_classes) if len(panel.rows) - panel.told >= quick else panel

    @property
    def _fewest_rows(self) -> int:
        """Samples that are added up at a time, by now."""
        most = fewest_rows(self._n_features)
        if self._all_learn:
            return most
        # With few labels all is in the newest: those who know little learn from few.
        heard = float(self.gaussians.mass[-1].sum())
        return min(most, max(FIRST_ROWS, round(ROWS_PER_LABEL * heard)))

    def _sketched(self, sketch: Sketch, x: Tensor, codes: Tensor) -> tuple[Panel, Tensor, Tensor]:
        """Samples that can be learned now, as sums; until they say what the scale is they wait."""
        if sketch.is_known:
            return self, sketch.of(x), codes
        x, codes = torch.cat([self.rows, x]), torch.cat([self.codes, codes])
        if len(x) < FEWEST_ROWS:
            return replace(self, rows=x, codes=codes), x[:0], codes[:0]
        sketch = sketch.fitted(x)
        none = x.new_zeros(0, SIZE), codes[:0]
        return replace(self, sketch=sketch, rows=none[0], codes=none[1]), sketch.of(x), codes

    def _told(self, n_classes: int) -> Panel:
        """Let Gaussians and micro-clusters learn what waits."""
        x, codes = self.rows[self.told :], self.codes[self.told :]
        if not len(x):
            return self
        near = self.neighbours.grown(n_classes)
        return replace(
            self,
            gaussians=self.gaussians.grown(n_classes).learned(x, codes),
            neighbours=near.learned(x, codes) if self._all_learn else near,
            told=len(self.rows),
        )

    @property
    def _n_features(self) -> int:
        """D: of the sketch, where there is one."""
        return len(self.orientation)

    @property
    def _all_learn(self) -> bool:
        """Whether features are so few that all experts learn."""
        return self._n_features <= MOST_FOR_ALL

    def _scaled(self, x: Tensor) -> Panel:
        """Take a scale that suits samples (N, D) as well, and move what was learned to it.

        Exactly so for what waits, for Gaussians, trees and micro-clusters. Waves do not stretch:
        what least squares have learned stays as it is, and fades.
        """
        old = self.standardiser
        new = old.observed(x)
        if new.samples < (1 + LAZINESS) * self.scaled_at:
            return replace(self, standardiser=new)
        fitted = new.refitted()
        stretch = (fitted.scale / old.scale).log().abs()
        moved = (fitted.shift - old.shift).abs() / old.scale
        strayed = bool((stretch > math.log(MOST_STRETCH)).any() or (moved > MOST_STRETCH).any())
        if not (old.settling or strayed):
            return replace(self, standardiser=new, scaled_at=new.samples)
        factor, offset = fitted.change_from(old)
        seen = torch.sign(x[0] - fitted.mean)
        orientation = torch.where(self.orientation == 0, seen, self.orientation)
        before, after = _signs(self.orientation), _signs(orientation)
        factor, offset = factor * before * after, offset * after
        return replace(
            self,
            standardiser=fitted,
            scaled_at=fitted.samples,
            orientation=orientation,
            gaussians=self.gaussians.rescaled(factor, offset),
            forests=self.forests.rescaled(factor, offset),
            neighbours=self.neighbours.rescaled(factor, offset),
            rows=self.rows * factor + offset,
        )

    def _added_up(self, n_classes: int, *, trees_in_place: bool = False) -> Panel:
        """Let least squares and trees learn what waits."""
        lines, trees = self.joint.grown(n_classes), self.forests.grown(n_classes)
        if self._all_learn:
            drawn = joint(self.rows.shape[1])
            lines = lines.learned(drawn, JOINT_HORIZONS, self.rows, self.codes)
            trees = trees.learned(self.rows, self.codes, in_place=trees_in_place)
        panel = self._told(n_classes)
        none = self.rows[:0].clone(), self.codes[:0].clone()
        return replace(panel, joint=lines, forests=trees, rows=none[0], codes=none[1], told=0)

    @property
    def raw(self) -> int:
        """Raw labelled samples that are held: those that wait, and clusters of one or two."""
        return max(len(self.rows), len(self.rows) - self.told + self.neighbours.raw)

    def without_raw(self) -> Panel:
        """Add up the samples that wait, and drop sums of fewer than three samples."""
        panel = self
        if self.rows.shape[1] != self._n_features:  # they wait for a scale
            panel = replace(self, rows=self.rows[:0].clone(), codes=self.codes[:0].clone())
        elif len(self.rows):
            heard = self.gaussians.mass.shape[1]
            panel = self._added_up(max(heard, 1 + int(self.codes.max())))
        return replace(
            panel,
            standardiser=panel.standardiser.without_raw(),
            gaussians=panel.gaussians.without_few(),
            joint=panel.joint.without_few(),
            forests=panel.forests.without_few(),
            neighbours=panel.neighbours.without_few(),
        )


def _of_all(n_horizons: int, opinions: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """What experts of all horizons say, (H, N, C), and know, (H, C): of the first ones nothing."""
    more = (0, 0) * (opinions.dim() - 1) + (n_horizons - len(opinions), 0)
    return torch.nn.functional.pad(opinions, more), torch.nn.functional.pad(
        known, (0, 0, *more[-2:])
    )


def _deferring(weights: Tensor) -> Tensor:
    """With `DEFERENCE` at least for the first of all."""
    first, others = weights[:1].clamp_min(DEFERENCE), weights[1:]
    others = others / others.sum()
    return torch.cat([first, others * (1 - first)])


def _signs(orientation: Tensor) -> Tensor:
    """1 where a feature has no orientation yet."""
    return torch.where(orientation == 0, 1.0, orientation)

"""Everything the product raises on purpose.

* GMRError
  + InvalidBatch         the sender can fix it; sending the same batch again will not help
    - ShapeMismatch      a wrong number of features, ragged rows, the wrong rank, images
                         of another shape, or bytes for a table
    - NonFiniteFeature   NaN or infinity among the features
    - InvalidLabels      labels of the wrong length or type
  + InvalidRequest       a question that cannot be answered as it was put
    - UnknownClass       a class was named that the model has never seen
    - ClassExists        a class was to have a name that another class has
    - UnknownVersion     a model version was named that is not kept
    - UnknownProposal    a proposed class was named that is not open
    - EmptySubTask       a boundary was declared before the sub-task had a sample
    - ModelAtRest        it would change a model that is frozen, or only detects
  + ModelNotReady        nothing has been learned yet; try again later
  + InvalidCheckpoint    bytes that are no checkpoint of ours, or are damaged
    - OtherRelease       it is whole, and a release wrote it that this one cannot read
  + InvalidSettings      the operator must change a setting

Messages come in three parts: what happened (with the numbers), what was
expected, what to do. Whoever holds an engine reads them, and whoever asks a
service: what only one of the two has stands beside what the other has. Each
error carries the numbers that help as `context`, a dict of plain values, so
that HTTP answers can repeat them as fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from core.counted import counted


class GMRError(Exception):
    """Root of the tree. `context` holds plain values that help a program react."""

    def __init__(self, message: str, **context: object) -> None:
        super().__init__(message)
        self.context = context


class InvalidBatch(GMRError):
    """The batch cannot be used; the sender must change it."""


class ShapeMismatch(InvalidBatch):
    """The samples do not have the number of features, or the shape, the model was built for."""

    @classmethod
    def features(cls, *, expected: int, got: int) -> ShapeMismatch:
        """The error for rows of a wrong length."""
        return cls(
            f"Each sample has {counted(got, 'feature')}, but this model was built for {expected}. "
            f"Check that images are flattened and that the stream is the right one.",
            expected=expected,
            got=got,
        )

    @classmethod
    def images(cls, *, expected: Sequence[int], got: Sequence[int]) -> ShapeMismatch:
        """The error for images of another shape and the same number of features."""
        advice = "Bring the images to that shape"
        if len(expected) == 3 and list(got) == [expected[2], *expected[:2]]:
            advice = "Send channels last: numpy.moveaxis(images, 1, -1)"
        elif len(expected) == 3 and list(expected) == [got[-1], *got[:-1]]:
            advice = "Send channels first: numpy.moveaxis(images, -1, 1)"
        return cls(
            f"Each image has shape {tuple(got)}, but this model was built for images of shape "
            f"{tuple(expected)}. {advice}, or flat rows (N, D) in the order of such images.",
            expected_shape=list(expected),
            shape=list(got),
        )

    @classmethod
    def bytes_for_a_table(cls) -> ShapeMismatch:
        """The error for uint8 where the model's samples are no images in [0, 1]."""
        return cls(
            "The samples are uint8, which means images, of which a byte k is k/255; but this model "
            "is a table, or of images in another unit: its first batch has fixed that. Send them "
            "as float32, in the units of what it has learned.",
            dtype="uint8",
        )


class NonFiniteFeature(InvalidBatch):
    """A feature is NaN or infinite."""

    @classmethod
    def at(cls, *, row: int, column: int, value: float) -> NonFiniteFeature:
        """The error that names the first offending position."""
        return cls(
            f"The feature at row {row}, column {column} is {value}; every feature must be a "
            f"finite number. Replace or drop missing values before sending.",
            row=row,
            column=column,
        )


class InvalidLabels(InvalidBatch):
    """Labels of the wrong length or type."""

    @classmethod
    def too_many_classes(cls, classes: int, limit: int) -> InvalidLabels:
        """The error for labels that would bring the number of classes above its limit."""
        return cls(
            f"This batch would bring the number of classes to {classes}; at most {limit} are "
            f"allowed. Check that the labels are classes and not identifiers, or raise "
            f"max_classes (GMR_MAX_CLASSES of a service; while it runs, gmr settings "
            f"max_classes=N).",
            classes=classes,
            limit=limit,
        )

    @classmethod
    def merged_into_itself(cls, label: object) -> InvalidLabels:
        """The error for two classes that are the same one."""
        return cls(
            f"The class {label!r} was to become part of itself. Expected the labels of two "
            f"classes. Name another.",
            label=label,
        )


class InvalidRequest(GMRError):
    """The question cannot be answered as it was put."""

    @classmethod
    def no_list(cls, classes: object) -> InvalidRequest:
        """The error for one label in the place of a list of them."""
        return cls(
            f"classes is {classes!r:.80}; it must be a list of labels, also for one. "
            f"Ask for classes=[{classes!r:.80}]."
        )

    @classmethod
    def check_list(cls, classes: object) -> None:
        """Raise this where one label stands in the place of a list of them."""
        one = isinstance(classes, str | bytes) or not hasattr(classes, "__iter__")
        if one or getattr(classes, "ndim", 1) != 1:
            raise cls.no_list(classes)


class UnknownClass(InvalidRequest):
    """A class was named that the model has never seen."""

    @classmethod
    def among(cls, unknown: Sequence[object], known: Sequence[object]) -> UnknownClass:
        """The error that lists the classes that are known."""
        return cls(
            f"The model has never seen the class {unknown[0]!r}. Known classes: "
            f"{', '.join(map(repr, known)) or 'none yet'}. Ask for one of these.",
            unknown=list(unknown),
            known=list(known),
        )


class ClassExists(InvalidRequest):
    """A class was to have a name that another class has."""

    @classmethod
    def of(cls, label: object) -> ClassExists:
        """The error that names it."""
        return cls(
            f"There is a class {label!r} already; expected a name that no class has. Choose "
            f"another, or ask that the two become one (POST /model/merge-classes, gmr merge).",
            label=label,
        )


class UnknownVersion(InvalidRequest):
    """A model version was named that is not kept."""

    @classmethod
    def among(cls, unknown: int, known: Iterable[int]) -> UnknownVersion:
        """The error that lists the versions that are kept."""
        kept = sorted(set(known), reverse=True)
        return cls(
            f"Version {unknown} is not kept. Kept are {', '.join(map(str, kept)) or 'none yet'}. "
            f"Choose one of these.",
            unknown=unknown,
            known=kept,
        )


class ModelNotReady(GMRError):
    """Nothing has been learned yet; try again later."""

    @classmethod
    def nothing_learned(cls) -> ModelNotReady:
        """The error of every question to a model that is not there."""
        return cls(
            "Nothing has been learned yet, so there is no model to ask. Expected samples first. "
            "Let it learn some (POST /ingest of a service)."
        )


class UnknownProposal(InvalidRequest):
    """A proposed class was named that is not open."""

    @classmethod
    def among(cls, unknown: int, known: list[int]) -> UnknownProposal:
        """The error that lists the proposals that are open."""
        return cls(
            f"Proposal {unknown} is not open. Open are {', '.join(map(str, known)) or 'none'}. "
            f"Choose one of these (GET /drift/proposals of a service).",
            unknown=unknown,
            known=known,
        )


class EmptySubTask(InvalidRequest):
    """A boundary was declared, but the current sub-task has had no sample."""

    @classmethod
    def of(cls, sub_task: int) -> EmptySubTask:
        """The error for the sub-task that cannot end yet."""
        return cls(
            f"No sample has come since sub-task {sub_task} began, so there is nothing that could "
            f"end. Expected at least one. Send samples of it first; what comes next belongs to "
            f"sub-task {sub_task} anyway.",
            sub_task=sub_task,
        )


class ModelAtRest(InvalidRequest):
    """What was asked for would change a model that is at rest."""

    @classmethod
    def of(cls, mode: str, what: str) -> ModelAtRest:
        """The error for what has to wait until the model learns again."""
        return cls(
            f"The model is at rest (mode {mode}), so {what}. Expected the mode learn. Change to "
            f"it (PUT /model/mode of a service, Engine.change_mode), then send this again.",
            mode=mode,
        )


class InvalidCheckpoint(GMRError):
    """The bytes are no checkpoint of ours, or are damaged."""

    @classmethod
    def features(cls, *, expected: int, got: int | None) -> InvalidCheckpoint:
        """The error for a checkpoint of another D than the stream's."""
        return cls(
            f"The checkpoint is of a model with {got} features, but this stream has {expected}. "
            f"Load it into a service of its own.",
            expected=expected,
            got=got,
        )


class OtherRelease(InvalidCheckpoint):
    """The bytes are whole, and another release wrote them that this one cannot read.

    What is damaged is replaced by an older copy. This is not: the release that wrote it can read
    it.
    """


class InvalidSettings(GMRError):
    """The operator must change a setting."""

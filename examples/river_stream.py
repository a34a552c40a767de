"""The model among River's: a classifier that forgets nothing, and a detector for one number.

Two classes come, then two others, and nobody says when. A classifier learns sample by sample and
is asked about each before. Beside it a detector watches the first feature alone. Run it:

    python examples/river_stream.py
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from river import metrics

from gmr.river import GMRClassifier, GMRDetector

CENTRES = {"a": (-3.0, 0.0), "b": (3.0, 0.0), "c": (-1.0, 6.0), "d": (5.0, 6.0)}
SUB_TASKS = ("ab", "cd")
SAMPLES_PER_SUB_TASK = 1000


def draw(classes: str, n: int, rng: random.Random) -> Iterator[tuple[dict[str, float], str]]:
    """`n` samples of round classes, as River has them, and their labels."""
    for _ in range(n):
        label = rng.choice(classes)
        x, y = CENTRES[label]
        yield {"x": rng.gauss(x, 1), "y": rng.gauss(y, 1)}, label


def main() -> tuple[GMRClassifier, GMRDetector, float]:
    """Stream both sub-tasks; say what was found; return both models, and the accuracy at last."""
    rng = random.Random(0)
    model, detector = GMRClassifier(), GMRDetector()
    accuracy = metrics.Accuracy()

    number = 0
    for classes in SUB_TASKS:
        for x, label in draw(classes, SAMPLES_PER_SUB_TASK, rng):
            if (guess := model.predict_one(x)) is not None:
                accuracy.update(label, guess)
            model.learn_one(x, label)
            detector.update(x["x"])
            if detector.drift_detected:
                began = detector.boundaries[-1]
                print(f"sample {number}: x has drifted, since about sample {began}")
            number += 1
    print(f"prequential: {accuracy}")
    print(f"the classifier's sub-tasks began at about samples {model.boundaries}")

    known = metrics.Accuracy()
    for x, label in draw("abcd", 500, rng):
        known.update(label, model.predict_one(x))
    print(f"of all classes, old ones included: {known}")
    return model, detector, known.get()


if __name__ == "__main__":
    main()

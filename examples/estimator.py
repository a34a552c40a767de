"""The model as a classifier of scikit-learn, which need not be told when its task changes.

First come zeros to fours, then fives to nines. `partial_fit` is told neither that nor when, and
no classes in advance. Run it:

    python examples/estimator.py
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from gmr import GMRClassifier


def main() -> GMRClassifier:
    """Learn both halves one after the other; say what is known then; return the classifier."""
    x, y = load_digits(return_X_y=True)
    x, test_x, y, test_y = train_test_split(x, y, test_size=0.2, stratify=y, random_state=0)
    random = np.random.default_rng(0)
    model = GMRClassifier(batch_size=50)

    for number, rows in enumerate((np.flatnonzero(y < 5), np.flatnonzero(y >= 5))):
        order = random.permutation(np.tile(rows, 2))
        model.partial_fit(x[order], y[order])
        known = np.isin(test_y, model.classes_)
        accuracy = model.score(test_x[known], test_y[known])
        print(f"after sub-task {number}: {len(model.classes_)} classes, accuracy {accuracy:.3f}")

    print(f"sub-tasks have begun at samples {model.boundaries_.tolist()}")
    likely, odd = model.score_samples(test_x).mean(), model.score_samples(16 - test_x).mean()
    print(f"log-likelihood of digits {likely:.0f} nats, of inverted ones {odd:.0f}")
    drawn, names = model.sample(3, classes=[7])
    print(f"drew samples {drawn.shape} of {names}")
    return model


if __name__ == "__main__":
    main()

"""A whole stream in seconds, through core alone: no service, no Redis, no files.

Two blobs arrive, batch by batch, then the world changes: a third class appears
where there was nothing before, and the first two are never seen again. The engine
is told neither that nor when. Run it:

    python examples/two_blobs.py
"""

from __future__ import annotations

import torch
from torch import Tensor

from core.events import BoundaryDetected, Replayed
from gmr import Batch, Engine, EngineConfig, Snapshot

CENTRES = {"left": (-3.0, 0.0), "right": (3.0, 0.0), "top": (0.0, 4.0)}
SUB_TASKS = (("left", "right"), ("top",))
BATCHES_PER_SUB_TASK = 40
BATCH_SIZE = 50


def draw(classes: tuple[str, ...], n: int, random: torch.Generator) -> tuple[Tensor, list[str]]:
    """`n` samples (n, 2) of round blobs, and their labels."""
    labels = [classes[i] for i in torch.randint(len(classes), (n,), generator=random).tolist()]
    centres = torch.tensor([CENTRES[label] for label in labels])
    return centres + 0.5 * torch.randn(n, 2, generator=random), labels


def accuracy(snapshot: Snapshot, random: torch.Generator) -> dict[str, float]:
    """Share of fresh samples of each known class that the model names rightly."""
    shares = {}
    for label in map(str, snapshot.classes):
        x, _ = draw((label,), 500, random)
        codes = snapshot.classify(x).codes.tolist()
        shares[label] = sum(snapshot.classes[code] == label for code in codes) / len(codes)
    return shares


def main() -> Snapshot:
    """Stream both sub-tasks; say what the engine reports; return what it has learned."""
    random = torch.Generator().manual_seed(0)
    engine = Engine(EngineConfig(n_components=10, warm_up=500))
    state = engine.start()

    for number, classes in enumerate(SUB_TASKS):
        for _ in range(BATCHES_PER_SUB_TASK):
            x, labels = draw(classes, BATCH_SIZE, random)
            # All there is to it: a state and a batch go in, a state and what happened come out.
            state, events = engine.step(state, Batch.of(x, list(labels)))
            for event in events:
                if isinstance(event, BoundaryDetected):
                    print(
                        f"batch {event.batch_index}: boundary, sub-task {event.sub_task} begins "
                        f"(inlier rate {event.evidence['inlier_rate']:.2f})"
                    )
                elif isinstance(event, Replayed):
                    print(f"   replayed {event.samples} samples from the model of before")
        shares = accuracy(engine.snapshot(state), random)
        print(f"after sub-task {number}: accuracy {shares}")

    snapshot = engine.snapshot(state)
    for label in ("left", "top"):
        mean = snapshot.sample(500, [label]).features.mean(0)
        print(f"drawn of {label!r}: mean {mean[0]:.1f}, {mean[1]:.1f}; truth {CENTRES[label]}")
    return snapshot


if __name__ == "__main__":
    main()

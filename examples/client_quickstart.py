"""Everything a client can do, in one page. Start a service first:

    gmr serve

then, in another terminal:

    python examples/client_quickstart.py
"""

from __future__ import annotations

from pathlib import Path

from clients.data.datasets import load_dataset
from clients.data.tasks import SLT, stream
from gmr import GMRClient


def main(url: str | None = None, folder: Path = Path()) -> float:
    """Teach a running service handwritten digits in two sub-tasks, then ask what it knows.

    Arguments:
        url: Where the service listens; by default `GMR_URL`, or http://127.0.0.1:8000.
        folder: Where the picture and the checkpoint are written.

    Returns:
        Accuracy on digits it was never shown.
    """
    digits = load_dataset("digits")

    with GMRClient(url) as client:
        client.wait_until_ready()

        # Teach: first 0 to 4, then 5 to 9. The service is not told where the change is.
        for sub_task in stream(SLT.parse("D5-5a"), digits.train_x, digits.train_y, epochs=3):
            for features, labels in sub_task.batches(50):
                client.ingest(features, labels)
        info = client.wait_until_learned()
        print(f"learned {info.samples_seen} samples; classes {sorted(map(int, info.labels))}")
        for boundary in client.boundaries():
            print(f"boundary at batch {boundary.batch_index}: sub-task {boundary.sub_task} begins")

        # Ask: which class, how typical, what does it look like?
        found = client.classify(digits.test_x)
        accuracy = float((found.labels == digits.test_y).mean())
        print(f"accuracy on {len(digits.test_y)} unseen digits: {accuracy:.3f}")

        inverted = client.outliers(255 - digits.test_x)
        print(f"{inverted.inliers.mean():.0%} of the inverted images pass for digits")

        drawn = client.sample(3, classes=[7], seed=1)
        print(f"drew {len(drawn.features)} samples of the class {drawn.labels.tolist()}")
        (folder / "samples.png").write_bytes(client.sample_image(50, list(range(10))))

        # Keep: the whole state is one file, from which any service can go on.
        (folder / "model.safetensors").write_bytes(client.checkpoint())
        print(f"wrote samples.png and model.safetensors to {folder.resolve()}")
        return accuracy


if __name__ == "__main__":
    main()

"""System's name -> system. The one place that knows all of them, and their sizes when quick."""

from __future__ import annotations

from benchmarks.paper_preset import EPOCHS
from benchmarks.systems.ewc import EWC
from benchmarks.systems.fine_tuning import FineTuning
from benchmarks.systems.lda import StreamingLDA
from benchmarks.systems.mixture import Mixture
from benchmarks.systems.replay import GenerativeReplay
from benchmarks.systems.system import System
from clients.http.errors import InputError
from core.config import PRESETS, EngineConfig
from service.trainer.device import choose_device

SYSTEMS = (*PRESETS, "paper-epochs", "ewc", "gr", "lda", "fine-tuning")
"""What `make_system` makes: every preset, then the baselines."""

QUICK_CHANNELS = 32
"""Of the GAN's widest layer when quick: an eighth of the width, a fiftieth of the work."""


def make_system(
    name: str, image: tuple[int, int], n_classes: int, seed: int, quick: bool
) -> System:
    """A system that has learned nothing yet, on the GPU where there is one.

    Arguments:
        name: One of `SYSTEMS`.
        image: Height and width of a sample; D is their product.
        n_classes: C, of all sub-tasks together.
        seed: Of every random choice.
        quick: Few epochs and a narrow GAN: shows that it runs, its numbers mean nothing.

    Raises:
        InputError: There is no such system, or it cannot work with images of this size.

    Example:
        >>> make_system("lda", (2, 2), 10, seed=0, quick=True).parameters
        66
    """
    n_features = image[0] * image[1]
    device = choose_device("auto")
    if name in PRESETS:
        return Mixture(name, EngineConfig(preset=name, seed=seed), n_classes, device=device)
    if name == "paper-epochs":
        config = EngineConfig(preset="paper", pace="published", detector="none", seed=seed)
        passes = [2] if quick else EPOCHS
        return Mixture(name, config, n_classes, epochs=passes, device=device)
    if name == "ewc":
        return EWC(n_features, n_classes, epochs=2 if quick else 10, seed=seed, device=device)
    if name == "gr":
        sizes = (1, 2, QUICK_CHANNELS) if quick else (50, 25, 256)
        return GenerativeReplay(
            image,
            n_classes,
            generator_epochs=sizes[0],
            solver_epochs=sizes[1],
            channels=sizes[2],
            seed=seed,
            device=device,
        )
    if name == "lda":
        return StreamingLDA(n_features, n_classes, device=device)
    if name == "fine-tuning":
        epochs = 2 if quick else 25
        return FineTuning(n_features, n_classes, epochs=epochs, seed=seed, device=device)
    raise InputError(
        f"There is no system {name!r}. Known: {', '.join(SYSTEMS)}. Choose one of these."
    )

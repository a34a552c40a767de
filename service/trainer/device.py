"""Which device `auto` comes to."""

from __future__ import annotations

import torch

from core.errors import InvalidSettings


def choose_device(name: str) -> torch.device:
    """The device that the setting `device` names; `auto` is CUDA where there is one.

    Products of this process are in whole single precision from then on, whatever the environment
    says: with halved mantissas (TF32), which some images ask for by
    `TORCH_ALLOW_TF32_CUBLAS_OVERRIDE`, likelihoods are off by parts of a nat, and a detector that
    compares them with those of another precision sees a change.

    Raises:
        InvalidSettings: CUDA was asked for, and there is none.
    """
    torch.set_float32_matmul_precision("highest")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InvalidSettings(
            f"The device is {name}, but this process sees {torch.cuda.device_count()} CUDA "
            f"devices. Set GMR_DEVICE=auto, or check the driver and CUDA_VISIBLE_DEVICES."
        )
    return device

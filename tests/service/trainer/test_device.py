"""Tests for the service.trainer.device module."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from core.errors import InvalidSettings
from service.trainer.device import choose_device


def test_auto_is_cuda_where_there_is_one() -> None:
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert choose_device("auto").type == expected
    assert choose_device("cpu").type == "cpu"


def test_a_device_that_is_not_there_is_refused_with_a_way_out() -> None:
    with pytest.raises(InvalidSettings, match="GMR_DEVICE=auto"):
        choose_device("cuda:63")


def test_products_are_in_whole_single_precision_whatever_an_image_asks_for() -> None:
    script = (
        "import torch; from service.trainer.device import choose_device; "
        "before = torch.get_float32_matmul_precision(); choose_device('cpu'); "
        "print(before, torch.get_float32_matmul_precision())"
    )
    found = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == ["high", "highest"]

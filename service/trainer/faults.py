"""Errors that are the machine's: what they end, they end for no fault of the entry at hand.

The same stream must give the same model wherever and whenever it is read, so that an entry is
given up for what it holds, and never because memory was short or a driver failed meanwhile.
"""

from __future__ import annotations

import gc
import re
from typing import Final

import torch

LIBRARIES: Final = re.compile(
    r"CUDA (driver )?error|HIP error|NCCL error"
    r"|cu(BLAS|SOLVER|DNN|SPARSE|FFT|RAND)[a-z]* error"
    r"|CU(BLAS|SOLVER|DNN|SPARSE|FFT|RAND)_STATUS_",
    re.IGNORECASE,
)
"""What an accelerator's libraries write into a plain RuntimeError."""

NO_MEMORY: Final = re.compile(
    r"can't allocate memory|out of memory|CU(BLAS|SOLVER|DNN|SPARSE)_STATUS_ALLOC_FAILED"
)
"""What torch writes into one where the host, or a library of the device, has no room."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the host or the device had no room.

    Example:
        >>> is_out_of_memory(MemoryError()), is_out_of_memory(ValueError("out of memory"))
        (True, False)
    """
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return type(error) is RuntimeError and NO_MEMORY.search(str(error)) is not None


def may_pass(error: BaseException) -> bool:
    """Whether it is known to be the machine's, so that it may go well another time."""
    return is_out_of_memory(error) or isinstance(error, OSError)


def is_machines(error: BaseException) -> bool:
    """Whether the process should end by it: later entries would fare no better.

    An accelerator's error leaves the device unusable for the whole process.

    Example:
        >>> is_machines(RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"))
        True
        >>> is_machines(ZeroDivisionError()), is_machines(torch.linalg.LinAlgError("singular"))
        (False, False)
    """
    if may_pass(error) or isinstance(error, torch.AcceleratorError):
        return True
    return type(error) is RuntimeError and LIBRARIES.search(str(error)) is not None


def make_room() -> None:
    """Give back what is not in use, on the host and on the device."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()

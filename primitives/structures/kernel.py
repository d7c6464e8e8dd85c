"""How loops are compiled.

Type checks are off in what is compiled: a compiler cannot see through their wrappers.

Cost: a compilation per type of the arrays at the first call, unless it is found on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compiles at the first call, and keeps the result on disk where a folder can be written."""
    try:
        compiled: Function = njit(cache=True, nogil=True)(function)
    except RuntimeError:
        compiled = njit(nogil=True)(function)
    return compiled

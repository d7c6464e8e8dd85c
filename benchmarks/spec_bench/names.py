"""Model ids of answer files: `<model>-<method>[-knobs]-<dtype>[-temp-<T>]`.

Model and method both hold hyphens, so the baseline's id is what tells where the model ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ID = re.compile(
    r"(?P<name>.+)-(?P<dtype>float(?:16|32|64)|bfloat16|fp(?:16|32|64)|bf16|int[48]|unknown)"
    r"(?:-temp(?:erature)?-(?P<temperature>\d+(?:\.\d+)?))?"
)
_BASELINE = re.compile(r"(?P<model>.+)-(?:vanilla|baseline|autoregressive)")


class NameFault(ValueError):
    """Names that cannot be told from a model id; the message says which options tell them."""


@dataclass(frozen=True, kw_only=True)
class RunNames:
    """What a result is filed under.

    Attributes:
        model: The target model.
        method: The method, its knobs included.
        dtype: As written in the id, e.g. `float16`.
        temperature: 0 is greedy.
    """

    model: str
    method: str
    dtype: str
    temperature: float


def parse_names(
    model_id: str,
    baseline_id: str,
    *,
    model: str | None = None,
    method: str | None = None,
    dtype: str | None = None,
    temperature: float | None = None,
) -> RunNames:
    """The names in a model id, except for those that are given.

    Args:
        model_id: Of the method's rows.
        baseline_id: Of vanilla's rows.
        model: Replaces what the ids say; so do the next three.
        method: See `model`.
        dtype: See `model`.
        temperature: See `model`.

    Raises:
        NameFault: If one of the four is neither given nor found.
    """
    whole = _ID.fullmatch(model_id)
    name = whole["name"] if whole else model_id
    if dtype is None and whole:
        dtype = whole["dtype"]
    if temperature is None and whole and whole["temperature"]:
        temperature = float(whole["temperature"])
    model = model or _model_of(baseline_id)
    if method is None and model and name.startswith(f"{model}-"):
        method = name.removeprefix(f"{model}-")
    if model is None or method is None or dtype is None or temperature is None:
        values = {"model": model, "method": method, "dtype": dtype, "temperature": temperature}
        missing = [f"--{key}" for key, value in values.items() if value is None]
        raise NameFault(
            f"model_id {model_id!r} is not <model>-<method>-<dtype>-temp-<T> beside a baseline "
            f"<model>-vanilla-... ({baseline_id!r}): give {', '.join(missing)}"
        )
    return RunNames(model=model, method=method, dtype=dtype, temperature=temperature)


def _model_of(baseline_id: str) -> str | None:
    whole = _ID.fullmatch(baseline_id)
    found = _BASELINE.fullmatch(whole["name"] if whole else baseline_id)
    return found["model"] if found else None

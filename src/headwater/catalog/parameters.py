"""Values as parameters of a statement: databases bound how many a statement may have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from headwater.base import limits

Value = TypeVar("Value")


def chunks(values: Sequence[Value]) -> list[Sequence[Value]]:
    """The values in parts, each of which fits into one statement."""
    size = limits.SQL_PARAMETERS
    return [values[i : i + size] for i in range(0, len(values), size)]

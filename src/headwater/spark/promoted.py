"""The value of a promoted column inside JSON, as a function on Spark's columns.

It runs in Python workers: Spark's own JSON functions neither distinguish `"5"` from `5` nor keep the digits of a
number, so their values would differ from those of the store's views.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.base.json_path import Steps
from headwater.base.types import Type
from headwater.coerce.at_path import column_at
from headwater.spark.arrow_function import arrow_function

if TYPE_CHECKING:
    from pyspark.sql import Column


def promoted_value(steps: Steps, type_: Type, file_type: str) -> Callable[[Column], Column]:
    """From a column of JSON text to the values at a path inside it, in the file form `file_type` of their type (a
    timestamp is its nanoseconds)."""
    return arrow_function(lambda texts: column_at(texts, steps, type_), file_type)

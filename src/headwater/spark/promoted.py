"""What a promoted column finds inside JSON, as a function on Spark's columns.

It runs in Python workers: Spark's own functions on JSON do not tell `"5"` from `5` nor keep the digits of a number, so
they could not find what the store's views show.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.base.json_path import Steps
from headwater.base.types import Type
from headwater.coerce.at_path import column_at

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column


def promoted_value(steps: Steps, type_: Type, file_type: str) -> Callable[[Column], Column]:
    """From a column of JSON text to the values at a place inside it, in the file form `file_type` of their type (a
    timestamp is its nanoseconds)."""
    import pyarrow as pa
    from pyspark.sql.pandas.functions import arrow_udf

    def found(texts: pa.Array) -> pa.Array:
        return column_at(texts, steps, type_)

    # Spark wants real types here, not the names of them, and finds out by itself what kind of function this is.
    found.__annotations__ = {"texts": pa.Array, "return": pa.Array}
    made: Callable[[Column], Column] = arrow_udf(found, file_type)  # type: ignore[call-overload]
    return made

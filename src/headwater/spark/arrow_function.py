"""Turns functions on Arrow columns into functions on Spark columns. They run in Python workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column


def arrow_function(work: Callable[[pa.Array], pa.Array], type_: str) -> Callable[[Column], Column]:
    """`work` returns one value for each, of Spark's type `type_`."""
    import pyarrow as pa
    from pyspark.sql.pandas.functions import arrow_udf

    def column(values: pa.Array) -> pa.Array:
        return work(values)

    # Spark needs real types here, not their names, and derives the kind of function from them.
    column.__annotations__ = {"values": pa.Array, "return": pa.Array}
    made: Callable[[Column], Column] = arrow_udf(column, type_)  # type: ignore[call-overload]
    return made

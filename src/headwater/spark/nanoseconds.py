"""The nanoseconds of a time beside Spark's microseconds: a column of remainders, 0 to 999, hidden from user code.

Spark computes with microseconds. If a result passes a time on unchanged, its remainder is kept
(`spark/carried_times.py`), and both become one value again just before they are written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

from headwater.coerce.times import FIRST_NS, LAST_NS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

REMAINDER = "_hw_ns:"
"""The prefix of a column of remainders; the name of its time follows."""
WITH_REMAINDERS: WeakSet[SparkSession] = WeakSet()
"""Sessions in which a table with remainders is read: only their frames may pass remainders on."""
_FIRST_US, _LAST_US = FIRST_NS // 1000, LAST_NS // 1000


def remainder_of(nanoseconds: str) -> str:
    """The remainder of a SQL expression that gives nanoseconds."""
    return f"cast(pmod({nanoseconds}, 1000) as int)"


def with_nanoseconds(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with each remainder added to its time. A column with a time that 64 bits of nanoseconds cannot hold
    stays as it is: the writer refuses it."""
    import pyarrow as pa

    names = [name for name in batch.schema.names if name.startswith(REMAINDER)]
    columns = {name: batch.column(name) for name in batch.schema.names if name not in names}
    for name in names:
        time = name.removeprefix(REMAINDER)
        columns[time] = _exact(columns[time], batch.column(name))
    return pa.RecordBatch.from_pydict(columns) if names else batch


def _exact(times: pa.Array, remainders: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    micros = times.cast(pa.int64())
    rest = remainders.cast(pa.int64()).fill_null(0)
    bounds = pc.min_max(micros).as_py()
    if bounds["min"] is None:
        return times
    if bounds["min"] > _FIRST_US and bounds["max"] < _LAST_US:
        exact = pc.add(pc.multiply(micros, 1000), rest)
    else:
        # At both ends of the range a product may need more than 64 bits although the sum does not.
        pairs = zip(micros.to_pylist(), rest.to_pylist())
        values = [None if micro is None else micro * 1000 + part for micro, part in pairs]
        if any(value is not None and not FIRST_NS <= value <= LAST_NS for value in values):
            return times
        exact = pa.array(values, pa.int64())
    return exact.cast(pa.timestamp("ns", tz="UTC"))

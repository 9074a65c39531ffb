"""The session of a run: its tables and settings are its own. What a run calls in the JVM is found once for a session: a
call takes a tenth of a millisecond and more, and a small run would make hundreds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from headwater.base import limits
from headwater.spark.nanoseconds import WITH_REMAINDERS
from headwater.spark.small_runs import plan_for_small

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SESSION_CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.variable.substitute": "false",
}
"""Settings that reading tables relies on, also if a platform started Spark and set others for its own session. Without
the last Spark would replace `${env:NAME}` in a query by a variable of the environment."""
_idle: WeakKeyDictionary[SparkSession, dict[bool, list[SparkSession]]] = WeakKeyDictionary()


@dataclass(frozen=True)
class SessionCalls:
    """What runs call in the JVM, for one session: its catalog of tables, Scala's `Iterator` and `Some`, the utilities
    that PySpark itself calls, the class of a temporary view."""

    catalog: Any
    iterator: Any
    some: Any
    utils: Any
    view: Any
    large_types: bool
    """Whether Spark wants texts in Arrow with 64-bit offsets."""
    shown: dict[str, Any] = field(default_factory=dict)
    """The description of each temporary view that was made by a command. The plan beside it decides the columns."""


_found: WeakKeyDictionary[SparkSession, SessionCalls] = WeakKeyDictionary()


def new_session(spark: SparkSession, *, small: bool) -> SparkSession:
    """A session that shares only the JVM; `small` plans for small inputs."""
    session = spark.newSession()
    for key, value in _SESSION_CONF.items():
        session.conf.set(key, value)
    if small:
        plan_for_small(session)
    return session


@contextmanager
def sql_session(spark: SparkSession, *, small: bool) -> Iterator[SparkSession]:
    """A session for a block that runs only SQL, which can leave nothing in it but tables. After a block that ended well
    the session is used again: to make one takes as long as a small query."""
    idle = _idle.setdefault(spark, {}).setdefault(small, [])
    try:
        session = idle.pop()
    except IndexError:
        session = new_session(spark, small=small)
    yield session
    with suppress(Exception):  # a Spark that has ended: what the block did is done
        java_of(session).catalog.clearTempTables()
        WITH_REMAINDERS.discard(session)
        idle.append(session)


def java_of(session: SparkSession) -> SessionCalls:
    if session not in _found:
        jvm: Any = session._jvm
        state = session._jsparkSession.sessionState()
        _found[session] = SessionCalls(
            catalog=state.catalog(),
            iterator=getattr(getattr(jvm, "scala.collection.Iterator$"), "MODULE$"),
            utils=jvm.PythonSQLUtils,
            view=getattr(jvm, "org.apache.spark.sql.catalyst.catalog.TemporaryViewRelation"),
            some=getattr(jvm, "scala.Some"),
            large_types=state.conf().arrowUseLargeVarTypes(),
        )
    return _found[session]


def show_as(frame: DataFrame, name: str) -> None:
    """`frame.createOrReplaceTempView(name)`. That plans and runs a command, which takes longer than a small query: so
    the next view of that name is put into the session's catalog without one."""
    java = java_of(frame.sparkSession)
    if name in java.shown:
        plan = frame._jdf.queryExecution().analyzed()
        java.catalog.createTempView(name, java.view(java.shown[name], java.some(plan)), True)
        return
    frame.createOrReplaceTempView(name)
    if len(java.shown) >= limits.VIEWS_DESCRIBED:
        java.shown.clear()
    java.shown[name] = java.catalog.getRawTempView(name).get().tableMeta()

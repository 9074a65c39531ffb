"""Runs a client's query in a process of its own, with limits on rows, bytes, memory and time."""

from __future__ import annotations

import os

from headwater.app.query import read_cut
from headwater.app.workspace import Workspace
from headwater.base import limits
from headwater.duck.query_pool import Answer, Query, QueryPool

__all__ = ["Query", "QueryPool"]


def answer_query(
    workspace: Workspace,
    pool: QueryPool,
    sql: str,
    *,
    limit: int,
    timeout_seconds: float,
    as_of: int | None = None,
    query: Query | None = None,
) -> Answer:
    """The first rows of one reading statement, in JSON. Raises HW-Q02 if it takes too long or `query` was cancelled,
    HW-Q03 if it needs too much memory, and HW-H05 if no process is free."""
    from headwater.duck.query_session import define
    from headwater.duck.sandbox import Resources

    with pool.process(limits.QUERY_WAIT_SECONDS, query) as process:
        statement = process.parse(sql, seconds=timeout_seconds)
        cut = read_cut(workspace, as_of=as_of)
        definitions = define(cut.states, tables_info=cut.infos, views=cut.views, statement=statement)
        resources = Resources(
            memory_bytes=limits.QUERY_MEMORY_BYTES,
            threads=min(os.cpu_count() or 1, limits.QUERY_THREADS),
            temp_directory=process.temp_directory,
        )
        return process.run(definitions, root=cut.root, resources=resources, rows=limit, seconds=timeout_seconds)

"""What user code said in jobs, kept for people: written with the end of a job, forgotten with its run.

It is the user's own text and may hold values of rows; control characters in it are kept as escapes (PostgreSQL takes no
NUL). It is a record beside the catalog's data: a rebuild leaves it empty, and no log holds it.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, delete, func, insert, literal, select

from headwater.base import limits
from headwater.base.printable import printable_lines
from headwater.catalog import sql_tables as t
from headwater.catalog.engine_records import JobOutput


def keep_output(connection: Connection, output: JobOutput | None, of: ColumnElement[bool]) -> None:
    """Note what user code said in a job, as part of a transaction."""
    if output is None or output == JobOutput():
        return
    said = [printable_lines(text) for text in (output.output, output.exception, output.traceback)]
    job = select(t.job.c.job_id, t.job.c.run_id, t.job.c.pond, t.job.c.ripple, *(literal(text) for text in said))
    names = ("job_id", "run_id", "pond", "ripple", "output", "exception", "traceback")
    connection.execute(insert(t.job_output).from_select(names, job.where(of)))


def outputs_of(connection: Connection, run_id: str) -> list[tuple[str, JobOutput]]:
    """What was said in the executions of a run, with the ripple of each, in the order of their jobs."""
    query = select(t.job_output).where(t.job_output.c.run_id == run_id).order_by(t.job_output.c.job_id)
    return [
        (row.ripple, JobOutput(output=row.output, exception=row.exception, traceback=row.traceback))
        for row in connection.execute(query)
    ]


def forget_outputs(connection: Connection, *, kept: int = limits.RUN_OUTPUTS_KEPT) -> int:
    """Drop what belongs to no run any more, and all but the newest of each pipeline; how many."""
    newest_first = func.row_number().over(partition_by=t.job_output.c.pond, order_by=t.job_output.c.job_id.desc())
    numbered = select(t.job_output.c.job_id, newest_first.label("number")).subquery()
    old = select(numbered.c.job_id).where(numbered.c.number > kept)
    gone = t.job_output.c.run_id.not_in(select(t.pond_run.c.run_id)) | t.job_output.c.run_id.is_(None)
    return connection.execute(delete(t.job_output).where(gone | t.job_output.c.job_id.in_(old))).rowcount

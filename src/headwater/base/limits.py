"""The numbers of the house: every bound on a loop, queue, retry, page or batch. Nothing else invents one."""

from __future__ import annotations

LEASE_SECONDS = 600
LEASE_RENEW_SECONDS = 200
LEDGER_TTL_SECONDS = 24 * 3600
LEDGER_SWEEP_SECONDS = 3600

COMPACTION_RUN_COUNT = 50
COMPACTION_INTERVAL_SECONDS = 6 * 3600
RETENTION_SECONDS = 7 * 24 * 3600
"""How long retired files and the files of losing attempts stay on disk."""

WARN_PARTITIONS = 1_000
WARN_MEDIAN_PARTITION_BYTES = 16 * 1024 * 1024
MULTIPART_BYTES = 5 * 1024 * 1024
TOKEN_OVERLAP_SECONDS = 24 * 3600
NEW_COLUMNS_PER_BATCH = 32
MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_BAD_ROWS = 100
LIVE_TAIL_FILES = 32

SOURCE_RETRIES = 5
"""Transient source errors are retried this often before they count as a failure."""
RETRY_FIRST_SECONDS = 0.2
RETRY_MAX_SECONDS = 10.0

NAME_BYTES = 63
MAX_JSON_DEPTH = 200

ROW_GROUP_ROWS = 122_880
"""Rows of a Parquet row group: DuckDB's own unit, small enough for zone maps to skip well."""
FILE_MAX_ROWS = 4_000_000
ARROW_BATCH_ROWS = 50_000

SLICE_BYTES = 512 * 1024 * 1024
"""A slice of a `files` source holds about this many bytes of input."""
SLICE_FILES = 1_000
SPLIT_BYTES = 32 * 1024 * 1024
"""One Spark task reads about this many bytes of input."""
MTIME_TRUST_NS = 2_000_000_000
"""A file's size and mtime are trusted only if the mtime is this much older than the scan that saw it."""

ERRORS_SHOWN = 20
"""How many errors of one kind are listed before the rest is only counted."""
VIEW_REFRESH_SECONDS = 1.0
CATALOG_BUSY_SECONDS = 30.0
POLL_SECONDS = 0.05
"""How often a process looks whether another one has finished the work it waits for."""
LOG_CHECK_COMMITS = 256
"""After so many commits the log is known to be whole again, and the mark that says so moves up."""

OWNER_LEASE_SECONDS = 30
"""How long the engine stands still if the machine of its owner is lost and another one stands by."""
INBOX_BATCH = 1_000
"""So many events are one step of the engine at most."""
WAKE_POLL_SECONDS = 0.025
"""How often a waiting process looks whether a SQLite catalog has changed."""
WAKE_RETRY_SECONDS = 1.0
ANSWER_TTL_SECONDS = 3600
"""How long the engine's answer to an event waits for its sender."""
JOB_RETENTION_SECONDS = 24 * 3600
"""How long ended jobs are kept for people to look at; their runs are kept for good."""
JOB_SWEEP_ROWS = 1_000
JOBS_SHOWN = 50

"""The numbers of the house: every bound on a loop, queue, retry, page or batch. Nothing else invents one."""

from __future__ import annotations

LEASE_SECONDS = 600
LEASE_RENEW_SECONDS = 200
LEDGER_TTL_SECONDS = 24 * 3600
LEDGER_SWEEP_SECONDS = 3600
CLOCK_GAP_SECONDS = 26 * 3600
"""A clock so far past the last commit is not believed at once: the store was idle, or the clock has jumped."""
CLOCK_CONFIRMED_SECONDS = 3600
"""It is believed when commits have been made by it for so long."""
CLOCK_COMMITS = 100_000
"""So many commits are looked at, at most, to find out."""

COMPACTION_RUN_COUNT = 50
COMPACTION_INTERVAL_SECONDS = 6 * 3600
RETENTION_SECONDS = 7 * 24 * 3600
"""How long retired files and the files of losing attempts stay on disk."""

WARN_PARTITIONS = 1_000
WARN_MEDIAN_PARTITION_BYTES = 16 * 1024 * 1024
MULTIPART_BYTES = 5 * 1024 * 1024
TOKEN_OVERLAP_SECONDS = 24 * 3600
NEW_COLUMNS_PER_BATCH = 32
TABLE_COLUMNS = 1_000
"""A table that has so many columns gets no more of them from unknown keys."""
BATCH_CELLS = 128 * 1024 * 1024
"""A pushed batch is held as columns: its rows times the columns of its table are so many at most."""
MAX_BODY_BYTES = 64 * 1024 * 1024
REQUEST_BODY_BYTES = 1024 * 1024
"""The body of an HTTP request that asks for something."""
WEBHOOK_BODY_BYTES = 32 * 1024 * 1024
"""The body of a webhook: it is not kept, but its signature is made over it."""
WEBHOOK_SECONDS = 300
"""How far the timestamp of a signed webhook may be from the server's clock."""
WEBHOOK_SIGNATURES = 100_000
"""Signatures that are remembered until their timestamp is too old, so that none is accepted twice."""
MAX_BAD_ROWS = 100
MOST_BAD_ROWS = 10_000
"""What a pipeline may raise it to."""
MAX_BAD_FILES = 100
"""So many files of a slice that cannot be read are kept as dead letters; a pipeline may raise it to `SLICE_FILES`."""
LETTERS_SHOWN = 50
LETTERS_AT_ONCE = 100_000
LETTERS_AT_ONCE_BYTES = 16 * 1024 * 1024
"""So many dead letters, and bytes of their files, are coerced again in one commit, if they lie in several files."""
BAD_ROWS_BYTES = 64 * 1024 * 1024
"""So many bytes of bad rows a part of a slice keeps at most; with more it fails."""
KEY_BYTES = 255
"""An idempotency key."""
KEYS_SHOWN = 50
PUSH_GROUP_BATCHES = 256
PUSH_GROUP_BYTES = 64 * 1024 * 1024
"""So many pushed batches, and bytes of them, share a commit at most."""
PUSH_SMALL_BYTES = 256 * 1024
"""Pushed batches of at most so many bytes are coerced together with those that they share a commit with."""
PUSH_GATHER_SECONDS = 0.01
"""For so long a commit of pushed batches waits for those who were answered by the one before it."""
PUSH_LANES = 1_000
"""So many tables that nobody pushes to at the moment are remembered."""
PUSH_TRIES = 16
"""How often a group of pushed batches is tried again because its table moved under it."""
DROP_SCAN_SECONDS = 1.0
"""How often a server looks into the drop folder, and for how long a file must not change before it is read."""
DROP_SETTLED_NS = 5_000_000_000
"""A dropped file whose mtime is so old is whole; a younger one is looked at twice."""
DROP_TRIES = 3
"""How often a dropped file is tried before it is put away. Bad data is put away at once."""
DROP_PAUSE_SECONDS = 60.0
"""The longest pause after something went wrong with a dropped file, or with its table."""
DROP_GROUP_BYTES = 8 * 1024 * 1024
"""So many bytes of small dropped files are held at once, and land together."""
LIVE_TAIL_FILES = 32
"""The files of a pushed table that are small enough to be merged are so many at most, if merging can keep up."""
TAIL_CLASS_BYTES = (16 * 1024, 128 * 1024, 1024 * 1024, 8 * 1024 * 1024)
"""The classes of small files of a pushed table, by the size that they end at."""
TAIL_CLASS_FILES = 8
"""So many files of one class are merged into one of the next."""
TAIL_MERGE_FILES = 1_000
TAIL_MERGE_BYTES = 64 * 1024 * 1024
"""One merge takes so many files, and bytes of them, at most."""

CANCEL_AGAIN_SECONDS = 0.2
"""How often the jobs of code that was stopped are cancelled, until it has noticed."""
SOURCE_RETRIES = 5
"""Transient source errors are retried this often before they count as a failure."""
RETRY_FIRST_SECONDS = 0.2
RETRY_MAX_SECONDS = 10.0

NAME_BYTES = 63
TRIGGER_ID_BYTES = 63
MAX_JSON_DEPTH = 200

ROW_GROUP_ROWS = 122_880
"""Rows of a Parquet row group: DuckDB's own unit, small enough for zone maps to skip well."""
FILE_MAX_ROWS = 4_000_000
ARROW_BATCH_ROWS = 50_000

CLAIM_TRIES = 16
"""How often a claim of the engine is tried again because another owner came and went."""
REPLANS = 3
"""How often a pipeline is planned again because its source moved under a slice."""
SLICES_QUEUED = 32
"""So many slices of a table are in the queue at once; the end of one brings in the next."""
SOURCE_IDLE_SECONDS = 60.0
"""The source of a run that no slice here has been read from for so long is closed."""
PLAN_PART_SLICES = 1_000
"""So many slices of a plan are stored in one commit."""
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
STRAY_SECONDS = 15.0
"""A lease of a living process that it does not know of after so long is one whose claim got no answer."""
TAKE_OVER_SECONDS = 5.0
"""How often idle workers look for jobs whose workers are gone."""
ANSWER_TTL_SECONDS = 3600
"""How long the engine's answer to an event waits for its sender."""
JOB_RETENTION_SECONDS = 24 * 3600
"""How long ended jobs are kept for people to look at; their runs are kept for good."""
JOB_SWEEP_ROWS = 1_000
RUN_OUTPUT_BYTES = 64 * 1024
"""So much of what a model writes to stdout and stderr in one execution is kept: its beginning and its end."""
RUN_EXCEPTION_BYTES = 16 * 1024
RUN_OUTPUTS_KEPT = 100
"""What a model said is kept for so many of a pipeline's newest executions."""
RUN_RETENTION_SECONDS = 30 * 24 * 3600
"""How long the history of pond runs is kept."""
EVENTS_KEPT = 10_000
"""So many of the engine's newest events can be listened to again."""
EVENTS_PAGE = 500
SWEEP_SECONDS = 60.0
"""How often a server forgets what nobody will ask for any more."""
MANIFEST_POLL_SECONDS = 1.0
"""How often a server looks whether a file of the manifest has changed."""
SIGNAL_ECHO_SECONDS = 1.0
"""A signal to stop that comes so soon after the first is the same one: `timeout` and some supervisors send it to the
process and then to its group."""
JOBS_SHOWN = 50

HTTP_RUNS_PAGE = 500
HTTP_STOP_SECONDS = 5.0
"""How long a stopping server waits for the requests that are under way."""
OPEN_FILES = 16_384
"""A server raises its limit of open files to this, or to the hard limit of the system if that is lower."""
HTTP_CONNECTIONS = 1_000
HTTP_FILES_SHARE = 4
"""Each listener (HTTP API, OTLP over HTTP, OTLP over gRPC) holds at most this many connections, and at most this
fraction of the process's open files. The rest is for the store, the catalog and worker processes."""
HTTP_ACCEPTS_AT_ONCE = 32
"""Connections accepted before the server reads from those that it has."""
HTTP_ACCEPT_PAUSE_SECONDS = 0.1
"""How long a server waits after the system refused it a connection, for lack of file descriptors for example."""
HTTP_REPORT_SECONDS = 60.0
"""Closed and refused connections are reported in one line of the log per interval."""
HTTP_HEADER_SECONDS = 10.0
"""How long a client may take to send the complete header of a request."""
HTTP_IDLE_SECONDS = 5.0
"""How long a connection stays open after an answer without a new request."""
HTTP_BODY_SECONDS = 20.0
HTTP_BODY_BYTES_PER_SECOND = 16 * 1024
HTTP_BODY_MAX_SECONDS = 120.0
"""A body has the first time, plus a second for each so many bytes that have come, and at most the last time."""
HTTP_STALLED_SECONDS = 1.0
"""A server with no free connection closes one whose body has made no progress for this long."""
HTTP_SEND_SECONDS = 30.0
HTTP_SEND_BYTES = 480 * 1024
"""A client reads at least so many bytes of its answer in that time, or all that is left of it."""
HTTP_UNSENT_BYTES = 512 * 1024 * 1024
"""Answers that clients have not read yet are so large at most, all together."""
HTTP_REQUEST_MEMORY_BYTES = 64 * 1024 * 1024
"""Bodies of requests that are neither pushes nor webhooks are so large at most, all together."""
HTTP_RETRY_SECONDS = 2
"""When a client may ask again while the catalog is away."""
SERVER_TRIES = 5
"""How often a command asks a busy server before it lands its rows itself."""
SERVER_HEALTH_SECONDS = 10.0
"""How long a command waits for a server to say that it is there."""
SERVER_ANSWER_SECONDS = 120.0
"""How long a command waits for a server that says nothing."""
INGESTS_AT_ONCE = 64
INGEST_THREADS = 32
INGEST_MEMORY_BYTES = 256 * 1024 * 1024
"""So many pushed batches, and bytes of them, a server holds at once; more are told to come again."""
OTLP_MESSAGE_BYTES = 16 * 1024 * 1024
"""The largest message of a gRPC call, as it comes: one for each thread is held before anybody can ask for room."""
OTLP_READ_SECONDS = 30.0
"""How long the message of a gRPC call may take to come: a thread waits for it, and exporters wait for ten seconds."""
OTLP_IDLE_SECONDS = 300.0
"""How long a gRPC connection stays open without a call: exporters send every few seconds to minutes."""
OTLP_PIECE_BYTES = 32 * 1024
"""A request of OTLP that is larger is read in pieces of about this size."""
OTLP_PARTS = 250_000
OTLP_PART_BYTES = 400
"""So many records has a request of OTLP at most, and values one of its records; and what each of those takes to hold."""
LISTENERS = 100
"""So many may listen to the engine's events at once."""
HEARTBEAT_SECONDS = 15.0
"""A stream of events that has nothing to tell says at least that it is there."""
FEED_PAUSE_SECONDS = 0.05
"""Under load the feed reads events so often at most; what comes meanwhile goes together."""

QUERIES_AT_ONCE = 4
"""So many processes run the queries of clients."""
QUERIES_WAITING = 16
"""So many more queries wait for a process; the others are refused."""
QUERY_WAIT_SECONDS = 10.0
"""How long a query waits for a process at most."""
QUERY_WORKER_QUERIES = 500
"""After so many queries a process is replaced."""
QUERY_WORKER_START_SECONDS = 60.0
QUERY_WORKER_PAUSE_SECONDS = 1.0
"""The pause after a process did not start."""
QUERY_DEPTH = 1_000
"""So deep the brackets of a query may be nested: DuckDB's own limit for expressions."""
QUERY_THREADS = 8
"""So many threads run one query of a client; each takes memory of its own."""
EAR_PAUSE_SECONDS = 0.1
"""The least time between two looks for jobs that another process may have put into a SQLite catalog."""
DELIVERY_SECONDS = 0.1
"""The least time between two times that the engine is told of pushed rows."""
QUERY_ROWS = 1_000
QUERY_MAX_ROWS = 100_000
QUERY_SECONDS = 30.0
QUERY_MAX_SECONDS = 600.0
QUERY_ANSWER_BYTES = 64 * 1024 * 1024
"""An answer over HTTP is cut before it is larger than this."""
QUERY_FRAME_BYTES = 256 * 1024
"""The rows of an answer leave the process that computes them in pieces of about this size."""
QUERY_MEMORY_BYTES = 1 << 30
"""So much memory DuckDB manages for a query over HTTP; with more it uses the disk."""
QUERY_EXTRA_BYTES = 512 * 1024 * 1024
"""So much more the process of a query may take: what DuckDB does not count. A sort of 30 million rows needs 400 MiB."""
QUERY_ALARM_SECONDS = 5.0
"""A process whose server does not end it ends itself so long after the time limit of its query."""
PLAN_DEPTH = 200
"""A time of a result is traced so deep into Spark's plan at most; further down its nanoseconds are not found."""

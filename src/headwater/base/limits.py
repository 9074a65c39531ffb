"""Every bound on a loop, queue, retry, page, batch or wait; a module that needs another one adds it here. Constants of
a file format or an algorithm stay beside their code: the Parquet part file, the row hash, sizes of a picture."""

from __future__ import annotations

LEASE_SECONDS = 600
LEASE_RENEW_SECONDS = 200
"""A lease is renewed when this part of `LEASE_SECONDS` has passed; a shorter one in the same proportion."""
LEDGER_TTL_SECONDS = 24 * 3600
LEDGER_SWEEP_SECONDS = 3600
CLOCK_GAP_SECONDS = 26 * 3600
"""A clock this far past the last commit is not trusted at once: the store was idle, or the clock has jumped."""
CLOCK_CONFIRMED_SECONDS = 3600
"""It is trusted after commits have used it for this long."""
CLOCK_COMMITS = 100_000
"""The most commits that are read to check this."""

DISK_LOW_BYTES = 1024 * 1024 * 1024
DISK_FULL_BYTES = 64 * 1024 * 1024
"""`doctor` warns below the first, and reports a problem below the second."""
MEMORY_LOW_BYTES = 1024 * 1024 * 1024
"""The memory needed besides the JVM's heap: for Python workers, DuckDB and this process."""

RETENTION_SECONDS = 7 * 24 * 3600
"""How long retired files and the files of losing attempts stay on disk."""

NEW_COLUMNS_PER_BATCH = 32
TABLE_COLUMNS = 1_000
"""A table with this many columns gets no more columns from unknown keys."""
BATCH_CELLS = 128 * 1024 * 1024
"""The most cells (rows times the table's columns) of a pushed batch, which is held as columns."""
MAX_BODY_BYTES = 64 * 1024 * 1024
REQUEST_BODY_BYTES = 1024 * 1024
"""The largest body of an HTTP request that is neither a push nor a webhook."""
WEBHOOK_BODY_BYTES = 32 * 1024 * 1024
"""The largest body of a webhook. It is not stored, but its signature covers it."""
WEBHOOK_SECONDS = 300
"""How far the timestamp of a signed webhook may be from the server's clock."""
WEBHOOK_SIGNATURES = 100_000
"""Signatures are remembered until their timestamp is too old, so that none is accepted twice."""
MAX_BAD_ROWS = 100
MOST_BAD_ROWS = 10_000
"""The most that a pipeline may raise it to."""
MAX_BAD_FILES = 100
"""The most unreadable files of a slice that are kept as dead letters; a pipeline may raise it to `SLICE_FILES`."""
LETTERS_SHOWN = 50
LETTERS_AT_ONCE = 100_000
LETTERS_AT_ONCE_BYTES = 16 * 1024 * 1024
"""The most dead letters, and bytes of their files, that one commit coerces again, if they are in several files."""
BAD_ROWS_BYTES = 64 * 1024 * 1024
"""The most bytes of bad rows that a part of a slice keeps; with more it fails."""
KEY_BYTES = 255
"""The longest idempotency key."""
KEYS_SHOWN = 50
PUSH_GROUP_BATCHES = 256
PUSH_GROUP_BYTES = 64 * 1024 * 1024
"""The most pushed batches, and bytes of them, that share a commit."""
PUSH_HELD_BYTES = 8 * 1024 * 1024
"""The most bytes of rows that are held before they land, of batches that one caller sends together (dropped files)."""
PUSH_SMALL_BYTES = 256 * 1024
"""Pushed batches up to this size are coerced together with the others of their commit."""
PUSH_GATHER_SECONDS = 0.01
"""How long a commit of pushed batches waits for the callers that the previous commit answered."""
PUSH_QUEUES = 1_000
"""The most tables without a push under way that are remembered."""
LANDING_TRIES = 16
"""How often rows are landed from a new state because their table changed meanwhile."""
DROP_SCAN_SECONDS = 1.0
"""How often a server scans the drop folder, and how long a file must be unchanged before it is read."""
DROP_SETTLED_NS = 5_000_000_000
"""A dropped file whose mtime is this old is complete; a younger one is checked twice."""
DROP_TRIES = 3
"""How often a dropped file is tried before it is moved to the failed files. Bad data is moved at once."""
DROP_PAUSE_SECONDS = 60.0
"""The longest pause after a failure of a dropped file or of its table."""
LIVE_TAIL_FILES = 32
"""The most files of a pushed table that are small enough to merge, if merging can keep up."""
TAIL_CLASS_BYTES = (16 * 1024, 128 * 1024, 1024 * 1024, 8 * 1024 * 1024)
"""The size classes of a pushed table's small files, by their upper bounds."""
TAIL_CLASS_FILES = 8
"""This many files of one class are merged into one file of the next class."""
TAIL_MERGE_FILES = 1_000
TAIL_MERGE_BYTES = 64 * 1024 * 1024
"""The most files, and bytes of them, that one merge takes."""

CANCEL_AGAIN_SECONDS = 0.2
"""How often the jobs of stopped code are cancelled, until the code has ended."""
SOURCE_RETRIES = 5
"""How often a transient source error is retried before it counts as a failure."""
RETRY_FIRST_SECONDS = 0.2
RETRY_MAX_SECONDS = 10.0

NAME_BYTES = 63
TRIGGER_ID_BYTES = 63
MAX_JSON_DEPTH = 200
MAX_DOCUMENT_DEPTH = 512
"""A document with a row that is nested deeper is refused as a whole."""

ROW_GROUP_ROWS = 122_880
"""Rows of a Parquet row group: DuckDB's own unit, small enough for zone maps to skip well."""
FILE_MAX_ROWS = 4_000_000
ARROW_BATCH_ROWS = 50_000

SMALL_INPUT_ROWS = 100_000
"""A run that reads at most this much in all is planned for small inputs, and its result goes to the driver."""
SMALL_INPUT_BYTES = 8 * 1024 * 1024
SMALL_INPUT_FILES = 32
CHECKED_QUERIES = 1_000
"""How many queries of models a process remembers as checked, and schemas of small tables in Spark's form."""
VIEWS_DESCRIBED = 1_000
"""How many names of tables a session of Spark remembers."""
SENT_INPUT_ROWS = 10_000
"""A table up to this size is sent to Spark as Arrow; Spark reads the files of a larger one."""
SENT_INPUT_BYTES = 1024 * 1024
SENT_BATCH_ROWS = 256
"""How many of its rows are decoded before their size is looked at."""
SMALL_RESULT_ROWS = 50_000
"""A larger result of small inputs is written by Spark's tasks after all."""

CLAIM_TRIES = 16
"""How often a claim of the engine is retried because another owner came and went."""
REPLANS = 3
"""How often a pipeline is planned again because its source changed under a slice."""
SLICES_QUEUED = 32
"""The most slices of a table that are in the queue at once; when one ends, the next is queued."""
SOURCE_IDLE_SECONDS = 60.0
"""The source of a run is closed if this process has read no slice from it for this long."""
PLAN_PART_SLICES = 1_000
"""The most slices of a plan that are stored in one commit."""
SLICE_BYTES = 512 * 1024 * 1024
"""A slice of a `files` source holds about this many bytes of input."""
SLICE_FILES = 1_000
SPLIT_BYTES = 32 * 1024 * 1024
"""One Spark task reads about this many bytes of input."""
MTIME_TRUST_NS = 2_000_000_000
"""A file's size and mtime are trusted only if the mtime is this much older than the scan that saw it."""

ERRORS_SHOWN = 20
"""The most errors of one kind that are listed; the rest is only counted."""
VIEW_REFRESH_SECONDS = 1.0
CATALOG_BUSY_SECONDS = 30.0
POLL_SECONDS = 0.05
"""How often a waiting process checks whether another one has finished the work."""
LOG_CHECK_COMMITS = 256
"""After this many commits the log is checked to be complete, and the mark that says so moves up."""

OWNER_LEASE_SECONDS = 30
"""How long no engine runs if its owner's machine is lost while another process waits to take over."""
INBOX_BATCH = 1_000
"""The most events in one step of the engine."""
WAKE_POLL_SECONDS = 0.025
"""How often a waiting process checks whether a SQLite catalog has changed."""
WAKE_RETRY_SECONDS = 1.0
STRAY_SECONDS = 15.0
"""If a living process has not known of its own lease for this long, the claim of that lease got no answer."""
TAKE_OVER_SECONDS = 5.0
"""How often idle workers scan for jobs whose workers are gone."""
ANSWER_TTL_SECONDS = 3600
"""How long the engine keeps its answer to an event for the sender."""
JOB_RETENTION_SECONDS = 24 * 3600
"""How long ended jobs are kept for users to inspect; their runs are kept for longer."""
JOB_SWEEP_ROWS = 1_000
RUN_OUTPUT_BYTES = 64 * 1024
"""How much of a model's stdout and stderr is kept per execution: its beginning and its end."""
RUN_EXCEPTION_BYTES = 16 * 1024
RUN_OUTPUTS_KEPT = 100
"""The output of a model is kept for this many of a pipeline's newest executions."""
RUN_RETENTION_SECONDS = 30 * 24 * 3600
"""How long the history of pond runs is kept."""
EVENTS_KEPT = 10_000
"""The most of the engine's newest events that can be read again."""
EVENTS_PAGE = 500
SWEEP_SECONDS = 60.0
"""How often a server deletes old answers, jobs and runs, and expired triggers."""
MANIFEST_POLL_SECONDS = 1.0
"""How often a server checks whether a file of the manifest has changed."""
SIGNAL_ECHO_SECONDS = 1.0
"""A stop signal that comes this soon after the first is the same one: `timeout` and some supervisors send it to the
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
"""A body may take the first time, plus a second for each `HTTP_BODY_BYTES_PER_SECOND`, and at most the last time."""
HTTP_STALLED_SECONDS = 1.0
"""A server with no free connection closes one whose body has made no progress for this long."""
HTTP_SEND_SECONDS = 30.0
HTTP_SEND_BYTES = 480 * 1024
"""A client must read at least this many bytes of its answer in that time, or all that is left of it."""
HTTP_UNSENT_BYTES = 512 * 1024 * 1024
"""The most bytes of all answers together that clients have not read yet."""
HTTP_REQUEST_MEMORY_BYTES = 64 * 1024 * 1024
"""The most bytes of all request bodies together that are neither pushes nor webhooks."""
HTTP_RETRY_SECONDS = 2
"""When a client may retry while the catalog is unreachable."""
INGESTS_AT_ONCE = 64
INGEST_THREADS = 32
INGEST_MEMORY_BYTES = 256 * 1024 * 1024
"""The most pushed batches, and bytes of them, that a server holds at once; clients must retry further ones."""
OTLP_MESSAGE_BYTES = 16 * 1024 * 1024
"""The largest message of a gRPC call, as received. Each thread holds one before it can reserve memory."""
OTLP_MESSAGE_CHARACTERS = 1_000
"""The longest OTLP message that names rejected rows or an error."""
OTLP_READ_SECONDS = 30.0
"""How long the message of a gRPC call may take to arrive: a thread waits for it, and exporters wait for ten seconds."""
OTLP_IDLE_SECONDS = 300.0
"""How long a gRPC connection stays open without a call: exporters send every few seconds to minutes."""
OTLP_PIECE_BYTES = 32 * 1024
"""A larger OTLP request is read in pieces of about this size."""
OTLP_PARTS = 250_000
OTLP_PART_BYTES = 400
"""The most records of an OTLP request, the most values of a record, and the memory that each of those takes."""
LISTENERS = 100
"""The most clients that listen to the engine's events at once."""
HEARTBEAT_SECONDS = 15.0
"""A stream without events sends a heartbeat this often."""
FEED_PAUSE_SECONDS = 0.05
"""Under load the feed reads events at most this often; events that come meanwhile are sent together."""
FEED_COUNT_SECONDS = 0.5
"""The same while no client listens, and events are only counted."""

QUERIES_AT_ONCE = 4
"""The number of processes that run the queries of clients."""
QUERIES_WAITING = 16
"""The most further queries that wait for a process; others are refused."""
QUERY_WAIT_SECONDS = 10.0
"""The longest time that a query waits for a process."""
QUERY_WORKER_QUERIES = 500
"""A process is replaced after this many queries."""
QUERY_WORKER_KEPT_BYTES = 128 * 1024 * 1024
"""A process that keeps this much more memory after a query than at its start is replaced: what it keeps counts against
its limit, and the next query cannot use it. A sort of 50,000 long texts leaves 70 MiB, one of a million 1,400 MiB."""
QUERY_WORKER_START_SECONDS = 60.0
QUERY_WORKER_PAUSE_SECONDS = 1.0
"""The pause after a process failed to start."""
QUERY_DEPTH = 1_000
"""How deep the brackets of a query may be nested: DuckDB's own limit for expressions."""
QUERY_THREADS = 8
"""The threads of one client's query; each takes memory of its own."""
EAR_PAUSE_SECONDS = 0.1
"""The least time between two scans for jobs that another process may have added to a SQLite catalog."""
DELIVERY_SECONDS = 0.1
"""The least time between two reports of pushed rows to the engine."""
QUERY_ROWS = 1_000
QUERY_MAX_ROWS = 100_000
QUERY_SECONDS = 30.0
QUERY_MAX_SECONDS = 600.0
QUERY_ANSWER_BYTES = 64 * 1024 * 1024
"""An answer over HTTP is cut before it is larger than this."""
QUERY_FRAME_BYTES = 256 * 1024
"""The rows of an answer leave the process that computes them in pieces of about this size."""
QUERY_MEMORY_BYTES = 1 << 30
"""The memory that DuckDB manages for a query over HTTP; beyond it DuckDB uses the disk."""
QUERY_EXTRA_BYTES = 512 * 1024 * 1024
"""The additional memory of a query's process, which DuckDB does not count. A sort of 30 million rows needs 400 MiB."""
QUERY_ALARM_SECONDS = 5.0
"""If its server does not end it, a query's process ends itself this long after the time limit of the query."""
PLAN_DEPTH = 200
"""How deep a time of a result is traced into Spark's plan; further down its nanoseconds are not found."""

# Commands
DEMAND_PATIENCE_SECONDS = 5.0
"""How long a sender waits for a running engine to accept an event."""
DROP_LISTING_SHARE = 10
"""The pause between two scans of the drop folder, as a multiple of the time that listing it takes."""
VIEW_REFRESH_SHARE = 30
"""The pause between two refreshes of the views, as a multiple of the time that the last one took."""
SCENARIO_BYTES = 64 * 1024 * 1024
"""A larger file is not a scenario: a hundred thousand pipelines fit."""
RUNS_SHOWN = 10
"""How many runs the status of one pipeline lists."""

# Catalog
WAL_PAUSE_SECONDS = 0.01
EXECUTIONS_MEASURED = 20
"""The median is taken of this many of the newest executions."""
MEASURED_JOBS = 1_000
"""The most of a pond's newest jobs that are read."""
SQL_PARAMETERS = 500
"""Databases bound the number of parameters of a statement."""
FILE_SOURCE_IDS = 1_000
"""The most source ids that the record of a file lists; with more it holds only their number."""
CHECKPOINT_COMMITS = 10_000
"""A checkpoint of the catalog is written after this many commits, and by gc."""
CHECKPOINTS_KEPT = 2
CHECKPOINT_ROWS = 1_000
"""The rows of a checkpoint that are inserted at once."""
LOG_WRITE_TRIES = 5
"""How often a record is written again because another machine's clean-up deleted its half-written file."""

# Reading JSON and files
INFER_SAMPLE_LINES = 100
"""The types are guessed from this many first lines; the rest of the piece only confirms them."""
JSON_PIECE_BYTES = 1 << 30
"""The most bytes of one piece: the texts of a column stay within Arrow's 32-bit offsets."""
JSON_DOCUMENT_BYTES = 256 * 1024 * 1024
"""The largest JSON document that is read: it is held in memory as a whole."""
ESTIMATE_BYTES = 64 * 1024
"""The sample of one file from which the rows of a slice are estimated."""
PREVIEW_BYTES = 1024 * 1024
"""How much text a preview reads, over all files of a slice."""
PREVIEW_FOOTERS = 16
"""How many Parquet footers a preview reads."""
NOTED_BYTES = 16 * 1024 * 1024
"""Files that were only touched are recorded if they have at least this many bytes together: hashing fewer bytes each
time is cheaper than a commit, and an apply that finds nothing new then writes nothing at all."""
FILE_CHUNK_BYTES = 4 * 1024 * 1024
"""How much of a file is decoded at a time: large enough to be fast, small enough for many tasks at once."""
PG_RANGE_ROWS = 1_000_000
PG_MAX_ROWS = 1_000_000_000
PG_UNINDEXED_ROWS = 100_000
"""A missing index is reported for tables with at least this many rows."""
PG_BATCH_BYTES = 8 * 1024 * 1024
"""About how many bytes of rows are held at once."""
PG_DATABASES = 8
"""The most servers whose type catalogs a process remembers."""
PG_CONNECT_SECONDS = 10
PG_KEEPALIVE_SECONDS = 30
PG_PARTITION_ROWS = 250_000
"""About how many rows are read over one connection; a slice has as many such ranges as its rows need."""
PG_RANGES = 10_000
PG_SNAPSHOT_TRIES = 3
"""How often a new snapshot is taken because a table was rewritten between it and the first read."""

# DuckDB
MERGE_WAITING_BYTES = 16 * 1024 * 1024
"""The most bytes of rows that wait to become one batch: the size of a file says little about its rows in memory."""
QUERY_FIRST_ROWS = 32
"""The rows of the first piece of an answer, when their size is not known yet."""
QUERY_FETCH_ROWS = 1_000
QUERY_ARROW_ROWS = 10_000
QUERY_SPILL_SHARE = 10
"""The most that a query writes to disk, as a multiple of its memory."""

# Scenarios and the simulation
MOST_ORIGINS = 10_000
"""The most ponds downstream that are searched for the origin of the demand."""
SCENARIO_SECONDS = 3_155_760_000
"""A hundred years: the largest time of a scenario. Its microseconds are still exact as a JSON number."""
SCENARIO_COUNT = 1_000_000
"""The largest number of retries or failures in a scenario."""
SCENARIO_NAME_CHARACTERS = 100
"""The longest name of a pipeline, ripple or trigger, in characters."""
SCENARIO_PROBLEMS = 100
"""The most problems that are reported; the others are counted."""
SCENARIO_NAMES_COMPARED = 1_000
"""The most names that are compared to find the one that was meant."""
SIMULATION_STEPS = 1_000_000
"""A simulation of more steps is refused: it would not end in reasonable time."""

# Dropped files and OTLP
DROP_NAMES = 1_000
"""The most failed files that can have the same name."""
DROP_NAME_BYTES = 200
"""How many bytes of a failed file's name are kept: the name of its reason file must fit too."""
DROP_HASH_OLD_NS = 3600 * 1_000_000_000
"""A file is remembered if it had not changed for this long when it was read. A later change then gives it another
mtime, even by another machine's clock: no clock is an hour behind."""
OTLP_DEPTH = 100
"""Protobuf reads no deeper message."""

# What interfaces show, and how a server starts
PROGRESS_BYTES = 4 * 1024 * 1024
"""A smaller batch has no progress bar: it lands before the bar could be read."""
TIMELINE_SHOWN = 60
"""A longer timeline is cut on the screen; `--json` has all of it."""
UNMEASURED_SHOWN = 8
HTTP_START_SECONDS = 30.0
HTTP_START_POLL_SECONDS = 0.01
HTTP_BACKLOG = 2_048
TIMELINE_TRACKS = 100
"""The most ripples that are drawn: a picture with more cannot be read."""
TIMELINE_BARS = 6_000

# Manifest
MANIFEST_BYTES = 16 * 1024 * 1024
"""A larger file in `pipelines/` is misplaced data, not a manifest."""

# Tracing
TRACE_FLUSH_SECONDS = 5.0
"""How long a process waits at its end for a collector that does not accept its spans."""
TRACED_RUNS = 10_000
"""The most runs under way that have a span; one more ends the oldest."""

# Models and plans
TABLE_NAMES_SHOWN = 12
"""How many tables a hint lists."""
QUERIES_CACHED = 4096
"""When a manifest is read again, few of its queries have changed."""
VIEWS_CACHED = 1024
SLICES_SHOWN = 20
"""The most slices of a table that a plan lists; the rest is counted."""
OUTPUT_LINE_CHARACTERS = 8 * 1024
"""A longer line is split into several."""
SECRET_CHARACTERS = 1024
"""A secret up to this length is found even where such a line is split."""

# Spark and its JVM
ARCHIVES_KEPT = 3
"""Archives have about 180 MB each; the least recently used one is deleted first."""
ARCHIVE_MEMORY_BYTES = 3 * 1024**3
"""A machine with less memory makes no archive: making one takes 1 GB beside the work."""
ARCHIVE_RETRY_SECONDS = 24 * 3600
"""The pause after a failure to make an archive."""
ARCHIVE_SECONDS = 1_800
"""The making of an archive is stopped after this time."""
ARCHIVE_POLL_SECONDS = 2.0
MESSAGE_CHARACTERS = 400
"""How much of a text of Spark, of DuckDB or of user code an error shows; the rest is in its cause."""
JVM_START_SECONDS = 300
"""How long a JVM may take until its gateway answers; package downloads are part of it."""
JVM_STOP_SECONDS = 20
"""How long a JVM may take to end by itself before it is killed."""
JVM_OUTPUT_LINES = 100
"""The last lines of the JVM's output that are kept for an error message."""
JVM_LINE_BYTES = 2_000
JVM_POLL_SECONDS = 0.005
JAVA_VERSION_SECONDS = 60
"""How long `java -version` may take; a slower program on PATH is not accepted as Java."""
SPARK_RETAINED = 100
"""Finished jobs, stages and queries that Spark keeps. Headwater does not read them, and memory must not grow."""
USER_CODE_CHARACTERS = 160

# Files of the store
ROW_GROUP_BYTES = 128 * 1024 * 1024
"""A row group is also written when its rows take this much memory, so that wide rows need no more."""
FILES_PER_PARTITION = 1_000
"""The most files of one partition: `FileRecord.ordinal` counts partitions in steps of it."""

"""Every bound on a loop, queue, retry, page, batch or wait. A module that needs another one adds it here. What a file
format or an algorithm fixes stays beside its code: the Parquet part file, the row hash, sizes of a picture."""

from __future__ import annotations

LEASE_SECONDS = 600
LEASE_RENEW_SECONDS = 200
"""A lease is renewed when this part of `LEASE_SECONDS` has passed; a shorter one in the same proportion."""
LEDGER_TTL_SECONDS = 24 * 3600
LEDGER_SWEEP_SECONDS = 3600
CLOCK_GAP_SECONDS = 26 * 3600
"""A clock so far past the last commit is not believed at once: the store was idle, or the clock has jumped."""
CLOCK_CONFIRMED_SECONDS = 3600
"""It is believed when commits have been made by it for so long."""
CLOCK_COMMITS = 100_000
"""So many commits are looked at, at most, to find out."""

DISK_LOW_BYTES = 1024 * 1024 * 1024
DISK_FULL_BYTES = 64 * 1024 * 1024
"""`doctor` warns below the one, and calls it a problem below the other."""
MEMORY_LOW_BYTES = 1024 * 1024 * 1024
"""Besides the heap of the JVM: for Python workers, DuckDB and this process."""

RETENTION_SECONDS = 7 * 24 * 3600
"""How long retired files and the files of losing attempts stay on disk."""

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
PUSH_HELD_BYTES = 8 * 1024 * 1024
"""Of batches that one caller brings together, such as dropped files, so many bytes of rows are held before they land."""
PUSH_SMALL_BYTES = 256 * 1024
"""Pushed batches of at most so many bytes are coerced together with those that they share a commit with."""
PUSH_GATHER_SECONDS = 0.01
"""For so long a commit of pushed batches waits for those who were answered by the one before it."""
PUSH_LANES = 1_000
"""So many tables that nobody pushes to at the moment are remembered."""
LANDING_TRIES = 16
"""How often rows are landed from a new state because their table changed meanwhile."""
DROP_SCAN_SECONDS = 1.0
"""How often a server looks into the drop folder, and for how long a file must not change before it is read."""
DROP_SETTLED_NS = 5_000_000_000
"""A dropped file whose mtime is so old is whole; a younger one is looked at twice."""
DROP_TRIES = 3
"""How often a dropped file is tried before it is put away. Bad data is put away at once."""
DROP_PAUSE_SECONDS = 60.0
"""The longest pause after something went wrong with a dropped file, or with its table."""
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
MAX_DOCUMENT_DEPTH = 512
"""A document with a row that is nested deeper is refused as a whole."""

ROW_GROUP_ROWS = 122_880
"""Rows of a Parquet row group: DuckDB's own unit, small enough for zone maps to skip well."""
FILE_MAX_ROWS = 4_000_000
ARROW_BATCH_ROWS = 50_000

SMALL_INPUT_ROWS = 100_000
"""A run that reads at most this much, in all, is planned for small inputs and brings its result to the driver."""
SMALL_INPUT_BYTES = 8 * 1024 * 1024
SMALL_INPUT_FILES = 32
SMALL_RESULT_ROWS = 50_000
"""A larger result of small inputs is written by Spark's tasks after all."""

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
"""How long no engine runs if the machine of its owner is lost while another process waits to take over."""
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
INGESTS_AT_ONCE = 64
INGEST_THREADS = 32
INGEST_MEMORY_BYTES = 256 * 1024 * 1024
"""So many pushed batches, and bytes of them, a server holds at once; more are told to come again."""
OTLP_MESSAGE_BYTES = 16 * 1024 * 1024
"""The largest message of a gRPC call, as it comes: one for each thread is held before anybody can ask for room."""
OTLP_MESSAGE_CHARACTERS = 1_000
"""A message of OTLP that names refused rows or an error."""
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
QUERY_WORKER_KEPT_BYTES = 128 * 1024 * 1024
"""A process that keeps so much more after a query than it had at its start is replaced: what it keeps counts against its
limit, and the next query cannot use all of it. A sort of 50,000 long texts leaves 70 MiB, one of a million 1,400 MiB."""
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

# Commands
DEMAND_PATIENCE_SECONDS = 5.0
"""How long a sender waits for a running engine to take notice."""
DROP_LISTING_SHARE = 10
"""The pause between two scans of the drop folder, as a multiple of the time that listing it takes."""
VIEW_REFRESH_SHARE = 30
"""The pause between two refreshes of the views, as a multiple of the time that the last one took."""
SCENARIO_BYTES = 64 * 1024 * 1024
"""A larger file is no scenario: a hundred thousand pipelines fit."""
RUNS_SHOWN = 10
"""How many runs the status of one pipeline lists."""

# Catalog
WAL_PAUSE_SECONDS = 0.01
EXECUTIONS_MEASURED = 20
"""The median of so many of the newest executions is taken."""
MEASURED_JOBS = 1_000
"""So many of the newest jobs of a pond are looked at."""
SQL_PARAMETERS = 500
"""Databases bound the number of parameters of a statement."""
FILE_SOURCE_IDS = 1_000
"""So many source ids are listed in the record of a file; of a file with more, only their number."""
CHECKPOINT_COMMITS = 10_000
"""A checkpoint of the catalog is written after so many commits, and by gc."""
CHECKPOINTS_KEPT = 2
CHECKPOINT_ROWS = 1_000
"""So many rows of a checkpoint are inserted at once."""
LOG_WRITE_TRIES = 5
"""How often a record is written whose half-written file another machine's clean-up took away."""

# Reading JSON and files
INFER_SAMPLE_LINES = 100
"""The first lines make a guess, which the rest of the piece then only confirms."""
JSON_PIECE_BYTES = 1 << 30
"""The most bytes of one piece: the texts of a column stay within Arrow's 32-bit offsets."""
JSON_DOCUMENT_BYTES = 256 * 1024 * 1024
"""The largest JSON document that is read: it is held in memory as a whole."""
ESTIMATE_BYTES = 64 * 1024
"""The sample of one file from which the rows of a slice are estimated."""
PREVIEW_BYTES = 1024 * 1024
"""How much text a preview looks at, over all files of a slice."""
PREVIEW_FOOTERS = 16
"""How many Parquet footers a preview looks at."""
NOTED_BYTES = 16 * 1024 * 1024
"""Files that were only touched are noted if they have at least so many bytes together: hashing fewer again each time
is cheaper than a commit, and an apply that finds nothing new then writes nothing at all."""
FILE_CHUNK_BYTES = 4 * 1024 * 1024
"""How much of a file is decoded at a time: large enough to be quick, small enough for many tasks at once."""
PG_RANGE_ROWS = 1_000_000
PG_MAX_ROWS = 1_000_000_000
PG_UNINDEXED_ROWS = 100_000
"""From so many rows on, a missing index is worth a warning."""
PG_BATCH_BYTES = 8 * 1024 * 1024
"""About so many bytes of rows are held at once."""
PG_DATABASES = 8
"""So many servers' type catalogs are remembered by a process."""
PG_CONNECT_SECONDS = 10
PG_KEEPALIVE_SECONDS = 30
PG_PARTITION_ROWS = 250_000
"""About so many rows are read over one connection; a slice has as many such ranges as its rows need."""
PG_RANGES = 10_000
PG_SNAPSHOT_TRIES = 3
"""How often a new snapshot is taken because a table was rewritten in the moment between it and the first look."""

# DuckDB
MERGE_WAITING_BYTES = 16 * 1024 * 1024
"""So many bytes of rows wait at most to become one batch: files say little of what their rows weigh in memory."""
QUERY_FIRST_ROWS = 32
"""The rows of the first piece of an answer, when it is not known yet how long they are."""
QUERY_FETCH_ROWS = 1_000
QUERY_ARROW_ROWS = 10_000
QUERY_SPILL_SHARE = 10
"""The most that a query writes to disk, as a multiple of its memory."""
QUERY_MESSAGE_CHARACTERS = 400

# Scenarios and the simulation
MOST_ORIGINS = 10_000
"""So many ponds downstream are looked at, at most, to find who made the demand."""
SCENARIO_SECONDS = 3_155_760_000
"""A hundred years: the largest time of a scenario. Its microseconds are still exact as a JSON number."""
SCENARIO_COUNT = 1_000_000
"""The largest number of retries or failures that can be asked for."""
SCENARIO_NAME_CHARACTERS = 100
"""The longest name of a pipeline, ripple or trigger, in characters."""
SCENARIO_PROBLEMS = 100
"""The most problems that are reported; the others are counted."""
SCENARIO_NAMES_COMPARED = 1_000
"""How many names are looked through for the one that was meant."""
SIMULATION_STEPS = 1_000_000
"""A simulation of more steps is refused: it would not end in reasonable time."""

# Dropped files and OTLP
DROP_NAMES = 1_000
"""So many files of one name can have failed."""
DROP_NAME_BYTES = 200
"""So much is kept of the name of a file that failed: beside it there must be room for the reason."""
DROP_HASH_OLD_NS = 3600 * 1_000_000_000
"""A file is remembered if it had not changed for so long when it was read. A change that comes after that gives it
another time, even one of another machine's clock: none of them is an hour behind."""
OTLP_DEPTH = 100
"""Protobuf reads no message that is nested deeper."""

# What interfaces show, and how a server starts
PROGRESS_BYTES = 4 * 1024 * 1024
"""A smaller batch has no progress bar: it has landed before the bar could be read."""
TIMELINE_SHOWN = 60
"""A longer timeline is cut on the screen; `--json` has all of it."""
UNMEASURED_SHOWN = 8
HTTP_START_SECONDS = 30.0
HTTP_START_POLL_SECONDS = 0.01
HTTP_BACKLOG = 2_048
TIMELINE_TRACKS = 100
"""Ripples that are drawn; a picture with more is not read by anybody."""
TIMELINE_BARS = 6_000

# Manifest
MANIFEST_BYTES = 16 * 1024 * 1024
"""A larger file in `pipelines/` is data that lost its way, not a manifest."""

# Tracing
TRACE_FLUSH_SECONDS = 5.0
"""How long the end of a process waits for a collector that does not take its spans."""
TRACED_RUNS = 10_000
"""So many runs under way have a span; the oldest one is ended for one more."""

# Models and plans
TABLE_NAMES_SHOWN = 12
"""How many tables a hint lists."""
QUERIES_CACHED = 4096
"""A manifest that is read again has changed in few of its queries."""
VIEWS_CACHED = 1024
SLICES_SHOWN = 20
"""How many slices of a table a plan lists; the rest is counted."""
OUTPUT_LINE_CHARACTERS = 8 * 1024
"""A line that is longer is taken for several."""
SECRET_CHARACTERS = 1024
"""A secret up to this length is found also where such a line is cut."""

# Spark and its JVM
ARCHIVES_KEPT = 3
"""Archives of about 180 MB each; the one that was used least recently goes first."""
ARCHIVE_MEMORY_BYTES = 3 * 1024**3
"""A machine with less memory than this is not burdened with making an archive (it takes 1 GB beside the work)."""
ARCHIVE_RETRY_SECONDS = 24 * 3600
"""The pause after a failure to make an archive."""
ARCHIVE_SECONDS = 1_800
"""An archive that is not made by then is given up."""
ARCHIVE_POLL_SECONDS = 2.0
SPARK_MESSAGE_CHARACTERS = 400
"""How much of Spark's text an error shows; the rest is in its cause."""
JVM_START_SECONDS = 300
"""How long a JVM may take until its gateway answers; package downloads are part of it."""
JVM_STOP_SECONDS = 20
"""How long a JVM may take to end by itself before it is killed."""
JVM_OUTPUT_LINES = 100
"""The last lines of the JVM's output that are kept for an error message."""
JVM_LINE_BYTES = 2_000
JVM_POLL_SECONDS = 0.005
JAVA_VERSION_SECONDS = 60
"""How long a `java -version` may take before the thing on PATH is not taken for a Java."""
SPARK_RETAINED = 100
"""Finished jobs, stages and queries that Spark keeps: they are not read, and memory must not grow."""
USER_CODE_CHARACTERS = 160
USER_ERROR_CHARACTERS = 400

# Files of the store
ROW_GROUP_BYTES = 128 * 1024 * 1024
"""A row group is also written when its rows weigh this much in memory: wide rows must not need more of it."""
FILES_PER_PARTITION = 1_000
"""How many files one partition may roll to: `FileRecord.ordinal` counts partitions in steps of it."""

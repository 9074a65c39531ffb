"""How a store of an older format becomes one of the next.

The statements are text, not the tables of today: they say what format n + 1 was, and stay as they are when later
formats change those tables again. They run on SQLite and PostgreSQL alike, all steps to the newest format in one
transaction.
"""

from __future__ import annotations

MIGRATIONS: dict[int, tuple[str, ...]] = {
    1: (
        "CREATE TABLE engine_owner (id INTEGER NOT NULL, holder TEXT NOT NULL, node TEXT NOT NULL,"
        " epoch BIGINT NOT NULL, leased_until_us BIGINT NOT NULL, PRIMARY KEY (id))",
        "CREATE TABLE inbox (id $SERIAL, at_us BIGINT NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL,"
        " actor TEXT NOT NULL, answer TEXT)",
        "CREATE TABLE engine_state (id INTEGER NOT NULL, header TEXT NOT NULL, step BIGINT NOT NULL,"
        " updated_us BIGINT NOT NULL, PRIMARY KEY (id))",
        "CREATE TABLE pond_state (pond TEXT NOT NULL, record TEXT NOT NULL, step BIGINT NOT NULL,"
        " updated_us BIGINT NOT NULL, PRIMARY KEY (pond))",
        "CREATE TABLE job (job_id TEXT NOT NULL, kind TEXT NOT NULL, pond TEXT NOT NULL, ripple TEXT NOT NULL,"
        " freshness_us BIGINT NOT NULL, body TEXT NOT NULL, weight TEXT NOT NULL, state TEXT NOT NULL,"
        " attempt INTEGER NOT NULL, created_us BIGINT NOT NULL, started_us BIGINT, ended_us BIGINT,"
        " rows BIGINT NOT NULL, bytes BIGINT NOT NULL, error TEXT, run_id TEXT, trace_id TEXT, PRIMARY KEY (job_id))",
        "CREATE INDEX job_queue ON job (state, job_id)",
        "CREATE INDEX job_pond ON job (pond, job_id)",
        "CREATE INDEX job_ended ON job (ended_us)",
        "CREATE TABLE job_lease (job_id TEXT NOT NULL, attempt INTEGER NOT NULL, epoch BIGINT NOT NULL,"
        " holder TEXT NOT NULL, node TEXT NOT NULL, leased_until_us BIGINT NOT NULL, PRIMARY KEY (job_id))",
    ),
    2: (
        "ALTER TABLE table_entry ADD COLUMN files_seq BIGINT NOT NULL DEFAULT 0",
        "UPDATE table_entry SET files_seq = changed_seq",
        "ALTER TABLE job ADD COLUMN landed_run_id TEXT",
        "CREATE INDEX job_run ON job (run_id)",
        "CREATE TABLE pond_run (run_id TEXT NOT NULL, pond TEXT NOT NULL, freshness_us BIGINT NOT NULL,"
        " cause TEXT NOT NULL, actor TEXT NOT NULL, state TEXT NOT NULL, started_us BIGINT NOT NULL, ended_us BIGINT,"
        " rows BIGINT NOT NULL, bytes BIGINT NOT NULL, error TEXT, trace_id TEXT, PRIMARY KEY (run_id))",
        "CREATE INDEX pond_run_pond ON pond_run (pond, run_id)",
        "CREATE INDEX pond_run_state ON pond_run (state)",
        "CREATE INDEX pond_run_ended ON pond_run (ended_us)",
        "CREATE TABLE engine_event (id $SERIAL, at_us BIGINT NOT NULL, kind TEXT NOT NULL, pond TEXT NOT NULL,"
        " run_id TEXT, body TEXT NOT NULL)",
        "CREATE INDEX engine_event_run ON engine_event (run_id)",
        "CREATE TABLE standing_trigger (pond TEXT NOT NULL, trigger_id TEXT NOT NULL, kind TEXT NOT NULL,"
        " limit_us BIGINT NOT NULL, actor TEXT NOT NULL, set_us BIGINT NOT NULL, expires_us BIGINT,"
        " PRIMARY KEY (pond, trigger_id))",
        "CREATE TABLE view_entry (name TEXT NOT NULL, pipeline TEXT NOT NULL, changed_seq BIGINT NOT NULL,"
        " PRIMARY KEY (name))",
        "CREATE TABLE view_definition (view_name TEXT NOT NULL, seq BIGINT NOT NULL, body TEXT NOT NULL,"
        " PRIMARY KEY (view_name, seq))",
        "CREATE TABLE view_cut (view_name TEXT NOT NULL, seq BIGINT NOT NULL, reads TEXT NOT NULL,"
        " PRIMARY KEY (view_name, seq))",
        "CREATE TABLE ledger_key (table_name TEXT NOT NULL, idempotency_key TEXT NOT NULL, fingerprint TEXT NOT NULL,"
        " rows BIGINT NOT NULL, bytes BIGINT NOT NULL, refused BIGINT NOT NULL, seq BIGINT NOT NULL,"
        " at_us BIGINT NOT NULL, expires_us BIGINT, PRIMARY KEY (table_name, idempotency_key))",
        "CREATE INDEX ledger_key_expires ON ledger_key (expires_us)",
        "CREATE TABLE push_writer (writer_id TEXT NOT NULL, holder TEXT NOT NULL, node TEXT NOT NULL,"
        " leased_until_us BIGINT NOT NULL, PRIMARY KEY (writer_id))",
    ),
    3: (
        "ALTER TABLE job ADD COLUMN spark_start_us BIGINT NOT NULL DEFAULT 0",
        "ALTER TABLE job ADD COLUMN changed INTEGER NOT NULL DEFAULT 1",
        "ALTER TABLE pond_run ADD COLUMN spark_start_us BIGINT NOT NULL DEFAULT 0",
        "ALTER TABLE pond_run ADD COLUMN changed INTEGER NOT NULL DEFAULT 1",
        "CREATE TABLE job_output (job_id TEXT NOT NULL, run_id TEXT, pond TEXT NOT NULL, ripple TEXT NOT NULL,"
        " output TEXT NOT NULL, exception TEXT NOT NULL, traceback TEXT NOT NULL, PRIMARY KEY (job_id))",
        "CREATE INDEX job_output_run ON job_output (run_id)",
        "CREATE INDEX job_output_pond ON job_output (pond, job_id)",
    ),
    4: (
        "CREATE TABLE lease (kind TEXT NOT NULL, id TEXT NOT NULL, attempt INTEGER NOT NULL, epoch BIGINT NOT NULL,"
        " holder TEXT NOT NULL, node TEXT NOT NULL, leased_until_us BIGINT NOT NULL, PRIMARY KEY (kind, id))",
        "INSERT INTO lease SELECT 'engine', '', 1, epoch, holder, node, leased_until_us FROM engine_owner",
        "INSERT INTO lease SELECT 'job', job_id, attempt, epoch, holder, node, leased_until_us FROM job_lease",
        "INSERT INTO lease SELECT 'writer', writer_id, 1, 0, holder, node, leased_until_us FROM push_writer",
        "DROP TABLE engine_owner",
        "DROP TABLE job_lease",
        "DROP TABLE push_writer",
    ),
    5: (
        # Open slices become jobs when their pipeline runs next; the attempts at them go on counting.
        "INSERT INTO job (job_id, kind, pond, ripple, freshness_us, body, weight, state, attempt, created_us, rows, bytes,"
        " landed_run_id) SELECT u.unit_id, 'slice', u.pipeline, u.table_name, 0, '{}', 'big', 'cancelled', l.attempt, 0, 0,"
        " 0, u.run_id FROM work_unit u JOIN unit_lease l ON l.unit_id = u.unit_id WHERE u.state = 'pending'",
        "DROP TABLE unit_lease",
        "DROP INDEX work_unit_run",
        "DROP INDEX work_unit_open",
        "DROP INDEX job_queue",
        "CREATE INDEX job_queue ON job (state, created_us, job_id)",
        "CREATE INDEX work_unit_place ON work_unit (run_id, table_name, ordinal)",
        "CREATE TABLE run_table (run_id TEXT NOT NULL, table_name TEXT NOT NULL, pipeline TEXT NOT NULL,"
        " slices INTEGER NOT NULL, pending INTEGER NOT NULL, done INTEGER NOT NULL, prefix INTEGER NOT NULL,"
        " rows BIGINT NOT NULL, bytes BIGINT NOT NULL, source_keys BIGINT, PRIMARY KEY (run_id, table_name))",
        "CREATE INDEX run_table_open ON run_table (pending)",
        "INSERT INTO run_table SELECT u.run_id, u.table_name, min(u.pipeline), count(*),"
        " sum(CASE WHEN u.state = 'pending' THEN 1 ELSE 0 END), sum(CASE WHEN u.state = 'done' THEN 1 ELSE 0 END),"
        " coalesce((SELECT min(v.ordinal) FROM work_unit v WHERE v.run_id = u.run_id AND v.table_name = u.table_name"
        " AND v.state <> 'done'), count(*)), sum(u.rows), sum(u.bytes),"
        " CASE WHEN sum(CASE WHEN u.state = 'done' THEN 1 ELSE 0 END) > 0 THEN -1 END"
        " FROM work_unit u GROUP BY u.run_id, u.table_name",
        # The version of a result alone says whether it has changed.
        "UPDATE inbox SET body = replace(replace(body, '\"changed\":true,', ''), '\"changed\":false,', '')"
        " WHERE kind = 'completed'",
        # A run of which slices have landed is no longer reading.
        "UPDATE run SET state = (SELECT CASE WHEN sum(pending) = 1 THEN 'committing' ELSE 'writing' END FROM run_table r"
        " WHERE r.run_id = run.run_id) WHERE state = 'reading' AND run_id IN"
        " (SELECT run_id FROM run_table GROUP BY run_id HAVING sum(pending) > 0 AND sum(done) > 0)",
        # A file's life is a row. `level` and the keys of files are decided by `inferred_levels` afterwards.
        "ALTER TABLE work_unit ADD COLUMN planned_seq BIGINT NOT NULL DEFAULT 0",
        "UPDATE work_unit SET planned_seq ="
        " coalesce((SELECT r.started_seq FROM run r WHERE r.run_id = work_unit.run_id), 0)",
        "ALTER TABLE table_entry ADD COLUMN rewritten_seq BIGINT NOT NULL DEFAULT 0",
        "ALTER TABLE table_entry ADD COLUMN purge_number BIGINT NOT NULL DEFAULT 0",
        "DROP INDEX file_entry_table",
        "ALTER TABLE file_entry RENAME TO file_entry_5",
        "CREATE TABLE file_entry (path TEXT NOT NULL, table_name TEXT NOT NULL, schema_id INTEGER NOT NULL,"
        " run_id TEXT NOT NULL, rows BIGINT NOT NULL, bytes BIGINT NOT NULL, ordinal INTEGER NOT NULL, sha256 TEXT,"
        " stats TEXT, sources TEXT, source_count BIGINT NOT NULL, positions BOOLEAN NOT NULL, content_sum TEXT,"
        " unique_keys BOOLEAN NOT NULL, merged BOOLEAN NOT NULL, level INTEGER, first_key TEXT, last_key TEXT,"
        " partition TEXT, sort_order TEXT, key_version INTEGER, index_ids TEXT, added_seq BIGINT NOT NULL,"
        " removed_seq BIGINT, removed_us BIGINT, origin_node TEXT NOT NULL, origin_seq BIGINT NOT NULL,"
        " PRIMARY KEY (path, added_seq))",
        "INSERT INTO file_entry SELECT path, table_name, schema_id, run_id, rows, bytes, ordinal, sha256, stats, sources,"
        " 0, FALSE, content_sum, unique_keys, merged, NULL, NULL, NULL, partition, sort_order, key_version, index_ids,"
        " added_seq, removed_seq, removed_us, origin_node, origin_seq FROM file_entry_5",
        "DROP TABLE file_entry_5",
        "CREATE INDEX file_entry_table ON file_entry (table_name, removed_seq, first_key, last_key)",
        "CREATE UNIQUE INDEX file_entry_live ON file_entry (path) WHERE removed_seq IS NULL",
        # The text of a log record can be deleted, the row of its commit stays.
        "CREATE TABLE log_record (seq BIGINT NOT NULL, body TEXT NOT NULL, cell_values TEXT, PRIMARY KEY (seq))",
        "INSERT INTO log_record (seq, body) SELECT seq, record FROM commit_record",
        "ALTER TABLE commit_record DROP COLUMN record",
    ),
}
"""Format n -> the statements that make it n + 1. A new store is made at the newest format directly. `$SERIAL` is a
primary key that counts up by itself and never gives a number twice."""

SERIAL = {"sqlite": "INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT", "postgresql": "BIGSERIAL PRIMARY KEY"}

CREATE SCHEMA headwater_shop;
CREATE TABLE headwater_shop.commit_record (
    seq bigint NOT NULL,
    commit_id text NOT NULL,
    at_us bigint NOT NULL,
    actor text NOT NULL,
    node text NOT NULL,
    record text NOT NULL
);
CREATE TABLE headwater_shop.file_entry (
    path text NOT NULL,
    table_name text NOT NULL,
    schema_id integer NOT NULL,
    run_id text NOT NULL,
    rows bigint NOT NULL,
    bytes bigint NOT NULL,
    ordinal integer NOT NULL,
    sha256 text,
    stats text,
    sources text,
    content_sum text,
    unique_keys boolean NOT NULL,
    merged boolean NOT NULL,
    partition text,
    sort_order text,
    key_version integer,
    index_ids text,
    added_seq bigint NOT NULL,
    removed_seq bigint,
    removed_us bigint,
    origin_node text NOT NULL,
    origin_seq bigint NOT NULL
);
CREATE TABLE headwater_shop.landed_item (
    pipeline text NOT NULL,
    table_name text NOT NULL,
    source_id text NOT NULL,
    version text NOT NULL,
    seq bigint NOT NULL
);
CREATE TABLE headwater_shop.lineage (
    child_run_id text NOT NULL,
    parent_run_id text NOT NULL
);
CREATE TABLE headwater_shop.pipeline_cursor (
    pipeline text NOT NULL,
    table_name text NOT NULL,
    kind text NOT NULL,
    version integer NOT NULL,
    source_identity text NOT NULL,
    value text NOT NULL,
    seq bigint NOT NULL
);
CREATE TABLE headwater_shop.run (
    run_id text NOT NULL,
    pipeline text NOT NULL,
    freshness_us bigint NOT NULL,
    trigger_kind text NOT NULL,
    actor text NOT NULL,
    connector text NOT NULL,
    definition text NOT NULL,
    cut text NOT NULL,
    state text NOT NULL,
    rows bigint NOT NULL,
    bytes bigint NOT NULL,
    error_kind text,
    error_message text,
    trace_id text,
    started_us bigint NOT NULL,
    ended_us bigint,
    started_seq bigint NOT NULL,
    ended_seq bigint
);
CREATE TABLE headwater_shop.schema_event (
    seq bigint NOT NULL,
    "position" integer NOT NULL,
    table_name text NOT NULL,
    kind text NOT NULL,
    column_name text,
    before_json text,
    after_json text,
    note text NOT NULL,
    proposal text,
    decided_by text NOT NULL,
    at_us bigint NOT NULL
);
CREATE TABLE headwater_shop.store (
    id integer NOT NULL,
    format_version integer NOT NULL,
    store_id text NOT NULL,
    project text NOT NULL,
    seq bigint NOT NULL,
    logged_seq bigint NOT NULL,
    created_us bigint NOT NULL
);
CREATE SEQUENCE headwater_shop.store_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE headwater_shop.store_id_seq OWNED BY headwater_shop.store.id;
CREATE TABLE headwater_shop.table_entry (
    name text NOT NULL,
    pipeline text NOT NULL,
    mode text NOT NULL,
    schema_id integer NOT NULL,
    created_seq bigint NOT NULL,
    changed_seq bigint NOT NULL,
    oldest_seq bigint NOT NULL
);
CREATE TABLE headwater_shop.table_schema (
    table_name text NOT NULL,
    schema_id integer NOT NULL,
    fingerprint text NOT NULL,
    body text NOT NULL,
    seq bigint NOT NULL
);
CREATE TABLE headwater_shop.unit_lease (
    unit_id text NOT NULL,
    attempt integer NOT NULL,
    epoch bigint NOT NULL,
    holder text NOT NULL,
    node text NOT NULL,
    leased_until_us bigint NOT NULL
);
CREATE TABLE headwater_shop.work_unit (
    unit_id text NOT NULL,
    run_id text NOT NULL,
    pipeline text NOT NULL,
    table_name text NOT NULL,
    ordinal integer NOT NULL,
    serial boolean NOT NULL,
    payload text NOT NULL,
    state text NOT NULL,
    rows bigint NOT NULL,
    bytes bigint NOT NULL,
    staged text,
    done_seq bigint
);
ALTER TABLE ONLY headwater_shop.store ALTER COLUMN id SET DEFAULT nextval('headwater_shop.store_id_seq'::regclass);
INSERT INTO headwater_shop.commit_record VALUES (1, '01a1e1b6-02f3-7553-85b9-f71f6954ae7a', 1794788164339940, 'operator:ada', 'node-1', '{"seq":1,"commit_id":"01a1e1b6-02f3-7553-85b9-f71f6954ae7a","at_us":1794788164339940,"actor":"operator:ada","node":"node-1","changes":[{"do":"table_created","table":"orders","pipeline":"shop","mode":"append"},{"do":"schema_set","table":"orders","schema_id":1,"schema":{"columns":[{"id":1,"name":"id","type":"long"},{"id":2,"name":"amount","type":"real"}],"primary_key":[],"next_id":3},"events":[{"kind":"created","after":{"columns":[{"id":1,"name":"id","type":"long"},{"id":2,"name":"amount","type":"real"}],"primary_key":[],"next_id":3}}]}]}');
INSERT INTO headwater_shop.commit_record VALUES (2, '01a1e1b6-02fd-7257-9790-2ca9d01b04c6', 1794788164349939, 'operator:ada', 'node-1', '{"seq":2,"commit_id":"01a1e1b6-02fd-7257-9790-2ca9d01b04c6","at_us":1794788164349939,"actor":"operator:ada","node":"node-1","changes":[{"do":"run_started","run_id":"01a1e1b6-02fc-7342-8b4e-769242734e0f","pipeline":"shop","freshness_us":1,"trigger":"apply","connector":"files@1","definition":"sha256:1"},{"do":"units_planned","run_id":"01a1e1b6-02fc-7342-8b4e-769242734e0f","pipeline":"shop","units":[{"unit_id":"01a1e1b6-02fd-7254-a5c6-7cd2672da28d","table":"orders","ordinal":0,"payload":{"slice":{"start":0,"end":10}}},{"unit_id":"01a1e1b6-02fd-7255-a5b4-5fdb701a9ab7","table":"orders","ordinal":1,"payload":{"slice":{"start":10,"end":20}}},{"unit_id":"01a1e1b6-02fd-7256-bb5e-4732a7549c0a","table":"orders","ordinal":2,"payload":{"slice":{"start":20,"end":30}}}]}]}');
INSERT INTO headwater_shop.commit_record VALUES (3, '01a1e1b6-0320-73d0-b3b2-ba35ebd53c3c', 1794788164384645, 'operator:ada', 'node-1', '{"seq":3,"commit_id":"01a1e1b6-0320-73d0-b3b2-ba35ebd53c3c","at_us":1794788164384645,"actor":"operator:ada","node":"node-1","changes":[{"do":"files_added","table":"orders","schema_id":1,"run_id":"01a1e1b6-02fc-7342-8b4e-769242734e0f","files":[{"path":"tables/orders/data/runs/01a1e1b6-02fc-7342-8b4e-769242734e0f/node-1/chunk-01a1e1b6-02fd-7254-a5c6-7cd2672da28d/attempt-1/part-00000-0.parquet","rows":10,"bytes":4,"ordinal":0,"sha256":"0000000000000000000000000000000000000000000000000000000000000000","stats":{"1":{"min":1,"max":10}},"sources":{"data/o.ndjson":10}}]},{"do":"unit_done","unit_id":"01a1e1b6-02fd-7254-a5c6-7cd2672da28d","rows":10,"bytes":4},{"do":"cursor_advanced","run_id":"01a1e1b6-02fc-7342-8b4e-769242734e0f","pipeline":"shop","table":"orders","kind":"monotonic","source_identity":"s"},{"do":"run_settled","run_id":"01a1e1b6-02fc-7342-8b4e-769242734e0f"}]}');
INSERT INTO headwater_shop.commit_record VALUES (4, '01a1e1b6-0345-7046-afd1-339546b33fe4', 1794788164421287, 'operator:ada', 'node-1', '{"seq":4,"commit_id":"01a1e1b6-0345-7046-afd1-339546b33fe4","at_us":1794788164421287,"actor":"operator:ada","node":"node-1","changes":[{"do":"items_landed","pipeline":"shop","table":"orders","items":{"data/o.ndjson":{"size":4}}}]}');
INSERT INTO headwater_shop.file_entry VALUES ('tables/orders/data/runs/01a1e1b6-02fc-7342-8b4e-769242734e0f/node-1/chunk-01a1e1b6-02fd-7254-a5c6-7cd2672da28d/attempt-1/part-00000-0.parquet', 'orders', 1, '01a1e1b6-02fc-7342-8b4e-769242734e0f', 10, 4, 0, '0000000000000000000000000000000000000000000000000000000000000000', '{"1":{"max":10,"min":1}}', '{"data/o.ndjson":10}', NULL, false, false, NULL, NULL, NULL, NULL, 3, NULL, NULL, 'node-1', 3);
INSERT INTO headwater_shop.landed_item VALUES ('shop', 'orders', 'data/o.ndjson', '{"size":4}', 4);
INSERT INTO headwater_shop.pipeline_cursor VALUES ('shop', 'orders', 'monotonic', 1, 's', '10', 3);
INSERT INTO headwater_shop.run VALUES ('01a1e1b6-02fc-7342-8b4e-769242734e0f', 'shop', 1, 'apply', 'operator:ada', 'files@1', 'sha256:1', '{}', 'reading', 0, 0, NULL, NULL, NULL, 1794788164349939, NULL, 2, NULL);
INSERT INTO headwater_shop.schema_event VALUES (1, 0, 'orders', 'created', NULL, 'null', '{"columns":[{"id":1,"name":"id","type":"long"},{"id":2,"name":"amount","type":"real"}],"next_id":3,"primary_key":[]}', '', NULL, 'auto', 1794788164339940);
INSERT INTO headwater_shop.store VALUES (1, 1, '01a1e1b6-02e5-74f1-b0c7-0be32ce40308', 'shop', 4, 0, 1794788164325521);
INSERT INTO headwater_shop.table_entry VALUES ('orders', 'shop', 'append', 1, 1, 3, 0);
INSERT INTO headwater_shop.table_schema VALUES ('orders', 1, 'sha256:bad8bae5ead7c2d5b23db2b3fa9fbf84f10541f283a5644f0ddac74aeebb9785', '{"columns":[{"id":1,"name":"id","type":"long"},{"id":2,"name":"amount","type":"real"}],"next_id":3,"primary_key":[]}', 1);
INSERT INTO headwater_shop.unit_lease VALUES ('01a1e1b6-02fd-7254-a5c6-7cd2672da28d', 1, 1794788164363961, 'node-1/1/1/00000000', 'node-1', 1794788764363961);
INSERT INTO headwater_shop.unit_lease VALUES ('01a1e1b6-02fd-7255-a5b4-5fdb701a9ab7', 1, 1794788164405528, 'node-1/1/1/00000000', 'node-1', 1794788764405528);
INSERT INTO headwater_shop.work_unit VALUES ('01a1e1b6-02fd-7255-a5b4-5fdb701a9ab7', '01a1e1b6-02fc-7342-8b4e-769242734e0f', 'shop', 'orders', 1, false, '{"slice":{"end":20,"start":10}}', 'pending', 0, 0, NULL, NULL);
INSERT INTO headwater_shop.work_unit VALUES ('01a1e1b6-02fd-7256-bb5e-4732a7549c0a', '01a1e1b6-02fc-7342-8b4e-769242734e0f', 'shop', 'orders', 2, false, '{"slice":{"end":30,"start":20}}', 'pending', 0, 0, NULL, NULL);
INSERT INTO headwater_shop.work_unit VALUES ('01a1e1b6-02fd-7254-a5c6-7cd2672da28d', '01a1e1b6-02fc-7342-8b4e-769242734e0f', 'shop', 'orders', 0, false, '{"slice":{"end":10,"start":0}}', 'done', 10, 4, NULL, 3);
ALTER TABLE ONLY headwater_shop.commit_record
    ADD CONSTRAINT commit_record_commit_id_key UNIQUE (commit_id);
ALTER TABLE ONLY headwater_shop.commit_record
    ADD CONSTRAINT commit_record_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY headwater_shop.file_entry
    ADD CONSTRAINT file_entry_pkey PRIMARY KEY (path);
ALTER TABLE ONLY headwater_shop.landed_item
    ADD CONSTRAINT landed_item_pkey PRIMARY KEY (pipeline, table_name, source_id);
ALTER TABLE ONLY headwater_shop.lineage
    ADD CONSTRAINT lineage_pkey PRIMARY KEY (child_run_id, parent_run_id);
ALTER TABLE ONLY headwater_shop.pipeline_cursor
    ADD CONSTRAINT pipeline_cursor_pkey PRIMARY KEY (pipeline, table_name);
ALTER TABLE ONLY headwater_shop.run
    ADD CONSTRAINT run_pkey PRIMARY KEY (run_id);
ALTER TABLE ONLY headwater_shop.schema_event
    ADD CONSTRAINT schema_event_pkey PRIMARY KEY (seq, "position");
ALTER TABLE ONLY headwater_shop.store
    ADD CONSTRAINT store_pkey PRIMARY KEY (id);
ALTER TABLE ONLY headwater_shop.table_entry
    ADD CONSTRAINT table_entry_pkey PRIMARY KEY (name);
ALTER TABLE ONLY headwater_shop.table_schema
    ADD CONSTRAINT table_schema_pkey PRIMARY KEY (table_name, schema_id);
ALTER TABLE ONLY headwater_shop.unit_lease
    ADD CONSTRAINT unit_lease_pkey PRIMARY KEY (unit_id);
ALTER TABLE ONLY headwater_shop.work_unit
    ADD CONSTRAINT work_unit_pkey PRIMARY KEY (unit_id);
CREATE INDEX file_entry_table ON headwater_shop.file_entry USING btree (table_name, removed_seq);
CREATE INDEX run_pipeline ON headwater_shop.run USING btree (pipeline, started_seq);
CREATE INDEX schema_event_table ON headwater_shop.schema_event USING btree (table_name, seq);
CREATE INDEX work_unit_open ON headwater_shop.work_unit USING btree (pipeline, state);
CREATE INDEX work_unit_run ON headwater_shop.work_unit USING btree (run_id);

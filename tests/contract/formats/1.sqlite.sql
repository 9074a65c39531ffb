BEGIN TRANSACTION;
CREATE TABLE commit_record (
	seq BIGINT NOT NULL, 
	commit_id TEXT NOT NULL, 
	at_us BIGINT NOT NULL, 
	actor TEXT NOT NULL, 
	node TEXT NOT NULL, 
	record TEXT NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (commit_id)
);
INSERT INTO "commit_record" VALUES(1,'01a1e1b5-fde1-7263-801a-4e52160c1d64',1794788163041333,'operator:ada','node-1','{"seq":1,"commit_id":"01a1e1b5-fde1-7263-801a-4e52160c1d64","at_us":1794788163041333,"actor":"operator:ada","node":"node-1","changes":[{"do":"table_created","table":"orders","pipeline":"shop","mode":"append"},{"do":"schema_set","table":"orders","schema_id":1,"schema":{"columns":[{"id":1,"name":"id","type":"long"},{"id":2,"name":"amount","type":"real"}],"primary_key":[],"next_id":3},"events":[{"kind":"created","after":{"columns":[{"id":1,"name":"id","type":"long"},{"id":2,"name":"amount","type":"real"}],"primary_key":[],"next_id":3}}]}]}');
INSERT INTO "commit_record" VALUES(2,'01a1e1b5-fdec-7057-a8de-ae90461f8599',1794788163052501,'operator:ada','node-1','{"seq":2,"commit_id":"01a1e1b5-fdec-7057-a8de-ae90461f8599","at_us":1794788163052501,"actor":"operator:ada","node":"node-1","changes":[{"do":"run_started","run_id":"01a1e1b5-fdeb-70a2-bac7-105565462802","pipeline":"shop","freshness_us":1,"trigger":"apply","connector":"files@1","definition":"sha256:1"},{"do":"units_planned","run_id":"01a1e1b5-fdeb-70a2-bac7-105565462802","pipeline":"shop","units":[{"unit_id":"01a1e1b5-fdeb-70a3-9575-62dd162d85e8","table":"orders","ordinal":0,"payload":{"slice":{"start":0,"end":10}}},{"unit_id":"01a1e1b5-fdeb-70a4-8684-951f6c6b99fe","table":"orders","ordinal":1,"payload":{"slice":{"start":10,"end":20}}},{"unit_id":"01a1e1b5-fdeb-70a5-8d5b-720aaa232c69","table":"orders","ordinal":2,"payload":{"slice":{"start":20,"end":30}}}]}]}');
INSERT INTO "commit_record" VALUES(3,'01a1e1b5-fdfb-7260-ab2a-216dbef0c865',1794788163067030,'operator:ada','node-1','{"seq":3,"commit_id":"01a1e1b5-fdfb-7260-ab2a-216dbef0c865","at_us":1794788163067030,"actor":"operator:ada","node":"node-1","changes":[{"do":"files_added","table":"orders","schema_id":1,"run_id":"01a1e1b5-fdeb-70a2-bac7-105565462802","files":[{"path":"tables/orders/data/runs/01a1e1b5-fdeb-70a2-bac7-105565462802/node-1/chunk-01a1e1b5-fdeb-70a3-9575-62dd162d85e8/attempt-1/part-00000-0.parquet","rows":10,"bytes":4,"ordinal":0,"sha256":"0000000000000000000000000000000000000000000000000000000000000000","stats":{"1":{"min":1,"max":10}},"sources":{"data/o.ndjson":10}}]},{"do":"unit_done","unit_id":"01a1e1b5-fdeb-70a3-9575-62dd162d85e8","rows":10,"bytes":4},{"do":"cursor_advanced","run_id":"01a1e1b5-fdeb-70a2-bac7-105565462802","pipeline":"shop","table":"orders","kind":"monotonic","source_identity":"s"},{"do":"run_settled","run_id":"01a1e1b5-fdeb-70a2-bac7-105565462802"}]}');
INSERT INTO "commit_record" VALUES(4,'01a1e1b5-fe0b-7440-b544-157b7b38a87c',1794788163083202,'operator:ada','node-1','{"seq":4,"commit_id":"01a1e1b5-fe0b-7440-b544-157b7b38a87c","at_us":1794788163083202,"actor":"operator:ada","node":"node-1","changes":[{"do":"items_landed","pipeline":"shop","table":"orders","items":{"data/o.ndjson":{"size":4}}}]}');
CREATE TABLE file_entry (
	path TEXT NOT NULL, 
	table_name TEXT NOT NULL, 
	schema_id INTEGER NOT NULL, 
	run_id TEXT NOT NULL, 
	rows BIGINT NOT NULL, 
	bytes BIGINT NOT NULL, 
	ordinal INTEGER NOT NULL, 
	sha256 TEXT, 
	stats TEXT, 
	sources TEXT, 
	content_sum TEXT, 
	unique_keys BOOLEAN NOT NULL, 
	merged BOOLEAN NOT NULL, 
	partition TEXT, 
	sort_order TEXT, 
	key_version INTEGER, 
	index_ids TEXT, 
	added_seq BIGINT NOT NULL, 
	removed_seq BIGINT, 
	removed_us BIGINT, 
	origin_node TEXT NOT NULL, 
	origin_seq BIGINT NOT NULL, 
	PRIMARY KEY (path)
);
INSERT INTO "file_entry" VALUES('tables/orders/data/runs/01a1e1b5-fdeb-70a2-bac7-105565462802/node-1/chunk-01a1e1b5-fdeb-70a3-9575-62dd162d85e8/attempt-1/part-00000-0.parquet','orders',1,'01a1e1b5-fdeb-70a2-bac7-105565462802',10,4,0,'0000000000000000000000000000000000000000000000000000000000000000','{"1":{"max":10,"min":1}}','{"data/o.ndjson":10}',NULL,0,0,NULL,NULL,NULL,NULL,3,NULL,NULL,'node-1',3);
CREATE TABLE landed_item (
	pipeline TEXT NOT NULL, 
	table_name TEXT NOT NULL, 
	source_id TEXT NOT NULL, 
	version TEXT NOT NULL, 
	seq BIGINT NOT NULL, 
	PRIMARY KEY (pipeline, table_name, source_id)
);
INSERT INTO "landed_item" VALUES('shop','orders','data/o.ndjson','{"size":4}',4);
CREATE TABLE lineage (
	child_run_id TEXT NOT NULL, 
	parent_run_id TEXT NOT NULL, 
	PRIMARY KEY (child_run_id, parent_run_id)
);
CREATE TABLE pipeline_cursor (
	pipeline TEXT NOT NULL, 
	table_name TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	version INTEGER NOT NULL, 
	source_identity TEXT NOT NULL, 
	value TEXT NOT NULL, 
	seq BIGINT NOT NULL, 
	PRIMARY KEY (pipeline, table_name)
);
INSERT INTO "pipeline_cursor" VALUES('shop','orders','monotonic',1,'s','10',3);
CREATE TABLE run (
	run_id TEXT NOT NULL, 
	pipeline TEXT NOT NULL, 
	freshness_us BIGINT NOT NULL, 
	trigger_kind TEXT NOT NULL, 
	actor TEXT NOT NULL, 
	connector TEXT NOT NULL, 
	definition TEXT NOT NULL, 
	cut TEXT NOT NULL, 
	state TEXT NOT NULL, 
	rows BIGINT NOT NULL, 
	bytes BIGINT NOT NULL, 
	error_kind TEXT, 
	error_message TEXT, 
	trace_id TEXT, 
	started_us BIGINT NOT NULL, 
	ended_us BIGINT, 
	started_seq BIGINT NOT NULL, 
	ended_seq BIGINT, 
	PRIMARY KEY (run_id)
);
INSERT INTO "run" VALUES('01a1e1b5-fdeb-70a2-bac7-105565462802','shop',1,'apply','operator:ada','files@1','sha256:1','{}','reading',0,0,NULL,NULL,NULL,1794788163052501,NULL,2,NULL);
CREATE TABLE schema_event (
	seq BIGINT NOT NULL, 
	position INTEGER NOT NULL, 
	table_name TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	column_name TEXT, 
	before_json TEXT, 
	after_json TEXT, 
	note TEXT NOT NULL, 
	proposal TEXT, 
	decided_by TEXT NOT NULL, 
	at_us BIGINT NOT NULL, 
	PRIMARY KEY (seq, position)
);
INSERT INTO "schema_event" VALUES(1,0,'orders','created',NULL,'null','{"columns":[{"id":1,"name":"id","type":"long"},{"id":2,"name":"amount","type":"real"}],"next_id":3,"primary_key":[]}','',NULL,'auto',1794788163041333);
CREATE TABLE store (
	id INTEGER NOT NULL, 
	format_version INTEGER NOT NULL, 
	store_id TEXT NOT NULL, 
	project TEXT NOT NULL, 
	seq BIGINT NOT NULL, 
	logged_seq BIGINT NOT NULL, 
	created_us BIGINT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "store" VALUES(1,1,'01a1e1b5-fdd9-7146-a8d5-639bb6f5e4c2','shop',4,0,1794788163033522);
CREATE TABLE table_entry (
	name TEXT NOT NULL, 
	pipeline TEXT NOT NULL, 
	mode TEXT NOT NULL, 
	schema_id INTEGER NOT NULL, 
	created_seq BIGINT NOT NULL, 
	changed_seq BIGINT NOT NULL, 
	oldest_seq BIGINT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "table_entry" VALUES('orders','shop','append',1,1,3,0);
CREATE TABLE table_schema (
	table_name TEXT NOT NULL, 
	schema_id INTEGER NOT NULL, 
	fingerprint TEXT NOT NULL, 
	body TEXT NOT NULL, 
	seq BIGINT NOT NULL, 
	PRIMARY KEY (table_name, schema_id)
);
INSERT INTO "table_schema" VALUES('orders',1,'sha256:bad8bae5ead7c2d5b23db2b3fa9fbf84f10541f283a5644f0ddac74aeebb9785','{"columns":[{"id":1,"name":"id","type":"long"},{"id":2,"name":"amount","type":"real"}],"next_id":3,"primary_key":[]}',1);
CREATE TABLE unit_lease (
	unit_id TEXT NOT NULL, 
	attempt INTEGER NOT NULL, 
	epoch BIGINT NOT NULL, 
	holder TEXT NOT NULL, 
	node TEXT NOT NULL, 
	leased_until_us BIGINT NOT NULL, 
	PRIMARY KEY (unit_id)
);
INSERT INTO "unit_lease" VALUES('01a1e1b5-fdeb-70a3-9575-62dd162d85e8',1,1794788163054588,'node-1/1/1/00000000','node-1',1794788763054588);
INSERT INTO "unit_lease" VALUES('01a1e1b5-fdeb-70a4-8684-951f6c6b99fe',1,1794788163080558,'node-1/1/1/00000000','node-1',1794788763080558);
CREATE TABLE work_unit (
	unit_id TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	pipeline TEXT NOT NULL, 
	table_name TEXT NOT NULL, 
	ordinal INTEGER NOT NULL, 
	serial BOOLEAN NOT NULL, 
	payload TEXT NOT NULL, 
	state TEXT NOT NULL, 
	rows BIGINT NOT NULL, 
	bytes BIGINT NOT NULL, 
	staged TEXT, 
	done_seq BIGINT, 
	PRIMARY KEY (unit_id)
);
INSERT INTO "work_unit" VALUES('01a1e1b5-fdeb-70a3-9575-62dd162d85e8','01a1e1b5-fdeb-70a2-bac7-105565462802','shop','orders',0,0,'{"slice":{"end":10,"start":0}}','done',10,4,NULL,3);
INSERT INTO "work_unit" VALUES('01a1e1b5-fdeb-70a4-8684-951f6c6b99fe','01a1e1b5-fdeb-70a2-bac7-105565462802','shop','orders',1,0,'{"slice":{"end":20,"start":10}}','pending',0,0,NULL,NULL);
INSERT INTO "work_unit" VALUES('01a1e1b5-fdeb-70a5-8d5b-720aaa232c69','01a1e1b5-fdeb-70a2-bac7-105565462802','shop','orders',2,0,'{"slice":{"end":30,"start":20}}','pending',0,0,NULL,NULL);
CREATE INDEX schema_event_table ON schema_event (table_name, seq);
CREATE INDEX file_entry_table ON file_entry (table_name, removed_seq);
CREATE INDEX run_pipeline ON run (pipeline, started_seq);
CREATE INDEX work_unit_run ON work_unit (run_id);
CREATE INDEX work_unit_open ON work_unit (pipeline, state);
COMMIT;

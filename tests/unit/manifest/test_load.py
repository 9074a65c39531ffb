"""What a good manifest becomes: equal for TOML and JSON, complete, with the parts that are not supported yet."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.base import limits
from headwater.base.errors import ErrorList, HeadwaterError
from headwater.manifest.load import Project, load_project
from headwater.manifest.spec import definition_fingerprint

CONNECTORS = {"files", "postgres"}

SEED_TOML = """
[project]
name = "openhackers-warehouse"
version = "0.1.0"

[context]
path = ".headwater/context" # local store location
default_destination = "context" # all pipelines land here unless overridden

[sync]
bucket = "r2://oh-context"
endpoint = "https://<accountid>.r2.cloudflarestorage.com"
region = "auto"
# credentials via env: HEADWATER_SYNC_KEY_ID / HEADWATER_SYNC_KEY_SECRET

[[pipeline]]
id = "github-issues"
source = { connector = "github", config = { repo = "OpenHackersClub/gctrl" } }
tables = ["issues", "pull_requests", "comments"]
schedule = "every 15m"
incremental = "updated_at" # cursor strategy

[[pipeline]]
id = "shopify-orders"
source = { connector = "shopify", config = { shop = "openhackers" } }
secrets = ["SHOPIFY_TOKEN"]
tables = ["orders", "customers", "products"]
schedule = "0 */2 * * *" # cron
incremental = "updated_at"
destination = { connector = "context" } # explicit
"""
SEED_JSON = """{ "$schema": "https://headwater.dev/schemas/v1/pipeline.json", "id": "github-issues",
 "source": { "connector": "github", "config": { "repo": "OpenHackersClub/gctrl" } },
 "tables": ["issues", "pull_requests", "comments"], "schedule": "every 15m", "incremental": "updated_at"}
"""
SEED_BACKFILL = """
[[pipeline]]
id = "github-issues-historical"
source = { connector = "github", config = { repo = "torvalds/linux" } }
tables = ["issues"]
incremental = "updated_at"

[pipeline.backfill]
window = "30d" # one chunk per 30-day slice
parallelism = 4
rate_budget = "60/min"
start_from = "2010-01-01"
max_chunks_per_tick = 8
"""
SEED_TABLES = """
signing_keys = [{ kid = "k2", pub = "..." }, { kid = "k1", pub = "..." }]

[encryption]
key_source = "env:HEADWATER_KEY"

[[pipeline]]
id = "github"
source = { connector = "github", config = { repo = "torvalds/linux" } }

[[pipeline.tables]]
name = "github_issues"
agent_description = "GitHub issues across tracked repos."
redact = ["email"]
[pipeline.tables.compaction]
trigger_run_count = 50
trigger_interval = "6h"
cluster_by = ["repo", "updated_at"]
partition_by = "month(updated_at)" # opt-in; default = no partitioning
retain_runs = "7d"
[[pipeline.tables.indexes]]
kind = "pk"
on = ["id"]
[[pipeline.tables.indexes]]
kind = "vector"
column = "body"
model = "bge-large-en-v1.5"
dim = 1024
metric = "cosine"
m = 32
ef_construction = 200
[[pipeline.tables.indexes]]
kind = "fts"
columns = ["title", "body"]
analyzer = "english"
[[pipeline.tables.indexes]]
kind = "bloom"
on = "author_id"
"""
CONTRACT = """
[context]
catalog = "sqlite"
[spark]
master = "local[*]"
conf = { "spark.sql.shuffle.partitions" = "8" }
packages = []

[[pipeline]]
id = "orders"
source = { connector = "files", config = { path = "data/orders/*.ndjson", format = "ndjson" } }
poll = "10s"
[[pipeline.tables]]
name = "orders"
primary_key = ["id"]
columns = { id = "long", amount = "real", ordered_at = "timestamp", tags = "dynamic", v = "vector(8)" }
mode = "upsert"

[[pipeline]]
id = "currency"
source = { connector = "files", config = { path = "data/currency/*.csv" } }
tables = ["currency"]
[[pipeline.windows]]
start = "02:00"
every = "1d"
duration = "22h"
timezone = "Europe/Berlin"

[[pipeline]]
id = "daily-revenue"
sources = ["orders", { pipeline = "currency", required = false }]
retry = { immediately = 1, on_change = 1 }
always_run = false
[[pipeline.ripples]]
name = "revenue"
sql = "select date(ordered_at) as day, sum(amount) as revenue from orders group by 1"
[[pipeline.ripples]]
name = "top_days"
python = "models/revenue.py:top_days"
after = ["revenue"]
[[pipeline.triggers]]
kind = "wave"
[[pipeline.triggers]]
kind = "tide"
max_staleness = "15m"
[[pipeline.triggers]]
kind = "cron"
at = "0 */2 * * *"
"""
MANIFESTS = {"seed": SEED_TOML, "backfill": SEED_BACKFILL, "tables": SEED_TABLES, "contract": CONTRACT}


def project_of(root: Path, toml: str = "", environ: dict[str, str] | None = None, **files: str) -> Project:
    (root / "headwater.toml").write_text(toml)
    (root / "pipelines").mkdir(exist_ok=True)
    for name, text in files.items():
        (root / "pipelines" / name.replace("__", ".")).write_text(text)
    return load_project(root, connectors=CONNECTORS, environ=environ or {})


def lines_of(toml: str, pattern: str) -> list[int]:
    return [number for number, line in enumerate(toml.splitlines(), 1) if re.search(pattern, line)]


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_manifests_of_seeds_and_contracts_load(tmp_path: Path, name: str) -> None:
    assert project_of(tmp_path, MANIFESTS[name]).pipelines


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_manifests_of_seeds_and_contracts_pass_the_schema(tmp_path: Path, name: str) -> None:
    import tomllib

    import jsonschema

    from headwater.manifest.json_schema import pipeline_schema, project_schema

    document = tomllib.loads(MANIFESTS[name])
    jsonschema.Draft202012Validator(project_schema()).validate(document)
    for pipeline in document["pipeline"]:
        jsonschema.Draft202012Validator(pipeline_schema()).validate(pipeline)
    jsonschema.Draft202012Validator(pipeline_schema()).validate(json.loads(SEED_JSON))


def test_the_schema_is_valid_and_refuses_what_the_model_refuses() -> None:
    import jsonschema

    from headwater.manifest.json_schema import pipeline_schema, project_schema

    for schema in (pipeline_schema(), project_schema()):
        jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(pipeline_schema())
    good = {"id": "a", "source": {"connector": "files"}, "tables": ["t"]}
    assert validator.is_valid(good)
    for bad in (
        {**good, "tabels": []},
        {**good, "id": "A"},
        {**good, "sources": ["b"]},
        {"id": "a"},
        {**good, "poll": "10 s"},
        {**good, "schedule": None},
        {**good, "tables": [{"name": "t", "mode": "upsrt"}]},
    ):
        assert not validator.is_valid(bad), bad


@pytest.mark.parametrize("name", MANIFESTS)
def test_toml_and_json_give_equal_specs(tmp_path: Path, name: str) -> None:
    import tomllib

    from_toml = project_of(tmp_path, MANIFESTS[name])
    files = {f"{p['id']}__json": json.dumps(p) for p in tomllib.loads(MANIFESTS[name])["pipeline"]}
    (tmp_path / "json").mkdir()
    from_json = project_of(tmp_path / "json", "", **files)
    by_id = {pipeline.spec.id: pipeline.spec for pipeline in from_json.pipelines}
    assert {pipeline.spec.id: pipeline.spec for pipeline in from_toml.pipelines} == by_id
    for pipeline in from_toml.pipelines:
        assert definition_fingerprint(pipeline.spec) == definition_fingerprint(by_id[pipeline.spec.id])


def test_dates_and_times_of_toml_are_the_texts_of_json(tmp_path: Path) -> None:
    toml = 'id = "a"\nsource = { connector = "files", config = { since = 2024-05-01T00:00:00Z } }\ntables = ["t"]\n'
    toml += "backfill = { start_from = 2010-01-01 }\n[[windows]]\nstart = 02:00:00\nduration = '1h'\n"
    spec = project_of(tmp_path, "", a__toml=toml).pipelines[0].spec
    assert spec.backfill is not None and spec.backfill.start_from == "2010-01-01"
    assert spec.windows[0].start == "02:00:00"
    assert spec.source is not None and spec.source.config == {"since": "2024-05-01T00:00:00+00:00"}


def test_short_forms_are_the_long_ones(tmp_path: Path) -> None:
    short = '[[pipeline]]\nid = "a"\nsource = { connector = "files" }\ntables = ["x", "y"]\n'
    long = short.replace('["x", "y"]', '[{ name = "x" }, { name = "y" }]')
    (tmp_path / "long").mkdir()
    assert project_of(tmp_path, short).pipelines[0].spec == project_of(tmp_path / "long", long).pipelines[0].spec
    columns = '[[pipeline]]\nid = "a"\nsource = { connector = "files" }\n[[pipeline.tables]]\nname = "t"\ncolumns = { id = %s }\n'
    one = project_of(tmp_path, columns % '"long"').pipelines[0].spec
    assert one == project_of(tmp_path, columns % '{ type = "long" }').pipelines[0].spec


def test_the_fingerprint_ignores_order_and_written_out_defaults_and_nothing_else(tmp_path: Path) -> None:
    def fingerprint(text: str) -> str:
        return definition_fingerprint(project_of(tmp_path, "", a__toml=text).pipelines[0].spec)

    text = 'id = "a"\nsource = { connector = "files", config = { path = "x", format = "csv" } }\ntables = ["t"]\n'
    moved = 'tables = ["t"]\nsource = { config = { format = "csv", path = "x" }, connector = "files" }\nid = "a"\n'
    assert fingerprint(text) == fingerprint(moved) == fingerprint(text + "always_run = false\n")
    assert fingerprint(text) != fingerprint(text.replace("csv", "ndjson"))
    assert fingerprint(text) == "sha256:ec8c45a1eb6e5669936c4e4d0ec9488845e8bc3ea5f6bc613ae38d81799c573d"


def test_a_pipeline_file_may_be_bare_or_have_a_header(tmp_path: Path) -> None:
    bare = 'id = "a"\nsource = { connector = "files" }\n[[tables]]\nname = "t"\n'
    headed = '[[pipeline]]\nid = "a"\nsource = { connector = "files" }\n[[pipeline.tables]]\nname = "t"\n'
    first = project_of(tmp_path, "", a__toml=bare).pipelines[0]
    second = project_of(tmp_path, "", a__toml="# a comment\n\n" + headed).pipelines[0]
    assert first.spec == second.spec
    assert (str(first.position), str(second.position)) == ("pipelines/a.toml:1:1", "pipelines/a.toml:3:1")


def test_a_byte_order_mark_and_windows_line_ends_change_nothing(tmp_path: Path) -> None:
    plain = project_of(tmp_path, CONTRACT)
    (tmp_path / "headwater.toml").write_bytes(b"\xef\xbb\xbf" + CONTRACT.replace("\n", "\r\n").encode())
    marked = load_project(tmp_path, connectors=CONNECTORS, environ={})
    assert [p.spec for p in marked.pipelines] == [p.spec for p in plain.pipelines]
    assert [part.position for part in marked.unsupported] == [part.position for part in plain.unsupported]


def test_transform_plans_hidden_files_and_other_files_are_not_pipelines(tmp_path: Path) -> None:
    pipeline = '{"id": "a", "source": {"connector": "files"}, "tables": ["t"]}'
    others = {"a.transforms.json": "{}", ".b.json.1.tmp": "{", ".c.json": "{", "README.md": "#", "d.yaml": "id: d"}
    (tmp_path / "pipelines").mkdir()
    for name, text in others.items():
        (tmp_path / "pipelines" / name).write_text(text)
    project = project_of(tmp_path, "", a__json=pipeline)
    assert [loaded.file for loaded in project.pipelines] == ["pipelines/a.json"]
    assert project.warnings == ("pipelines/d.yaml: not read; manifests are `.toml` or `.json`",)


def test_columns_that_need_quotes_are_a_warning(tmp_path: Path) -> None:
    toml = '[[pipeline]]\nid = "a"\nsource = { connector = "files" }\n[[pipeline.tables]]\nname = "t"\n'
    toml += 'columns = { id = "long", order = "long", "total price" = "real", Name = "string" }\n'
    project = project_of(tmp_path, toml)
    expected = "headwater.toml:6:26: columns `order`, `total price` must be in double quotes in SQL"
    assert project.warnings == (expected,)


def test_the_words_that_need_quotes_are_those_of_duckdb() -> None:
    import duckdb

    from headwater.manifest.vocabulary import KEYWORDS

    connection = duckdb.connect()
    refused = set()
    for (word,) in connection.execute("select keyword_name from duckdb_keywords()").fetchall():
        try:
            connection.execute(f'select {word} from (select 1 as "{word}") where {word} = 1 order by {word}').fetchall()
        except duckdb.Error:
            refused.add(word)
    assert refused == KEYWORDS


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "seed",
            {
                "sync": r"^\[sync\]",
                "github-issues source.connector": r"connector = .github",
                "shopify-orders source.connector": r"connector = .shopify",
            },
        ),
        (
            "backfill",
            {
                "github-issues-historical source.connector": r"connector = .github",
                "github-issues-historical backfill": r"pipeline\.backfill",
            },
        ),
        (
            "tables",
            {
                "encryption": r"^\[encryption\]",
                "signing_keys": r"^signing_keys",
                "github source.connector": r"connector = .github",
                "github tables[0].compaction": r"tables\.compaction",
                "github tables[0].indexes": r"tables\.indexes",
                "github tables[0].redact": r"^redact",
                "github tables[0].agent_description": r"^agent_description",
            },
        ),
        ("contract", {}),
    ],
)
def test_exactly_the_parts_without_behaviour_are_listed_with_their_places(
    tmp_path: Path, name: str, expected: dict[str, str]
) -> None:
    project = project_of(tmp_path, MANIFESTS[name])
    found = {f"{part.pipeline or ''} {part.key}".strip(): part.position.line for part in project.unsupported}
    assert found == {key: lines_of(MANIFESTS[name], pattern)[0] for key, pattern in expected.items()}


def test_an_unsupported_part_refuses_its_pipeline_and_no_other(tmp_path: Path) -> None:
    plain = '[[pipeline]]\nid = "plain"\nsource = { connector = "files" }\ntables = ["p"]\n'
    project = project_of(tmp_path, SEED_BACKFILL + plain)
    project.refuse_unsupported(["plain"])
    with pytest.raises(HeadwaterError):
        project.refuse_unsupported(["github-issues-historical", "plain"])
    past = '[[pipeline]]\nid = "past"\nsource = { connector = "files" }\ntables = ["q"]\nbackfill = { window = "7d" }\n'
    project = project_of(tmp_path, plain + past)
    with pytest.raises(HeadwaterError) as caught:
        project.refuse_unsupported(["past", "plain"])
    assert caught.value.render() == (
        "error[HW-M09]: `backfill` of pipeline `past` is not supported yet: it comes with `headwater backfill`\n"
        "  headwater.toml:9:1\n"
        "hint: remove it, or leave this pipeline out"
    )
    project = project_of(tmp_path, SEED_BACKFILL + plain + past)
    with pytest.raises(ErrorList):
        project.refuse_unsupported([loaded.spec.id for loaded in project.pipelines])


def test_only_files_keep_bad_rows(tmp_path: Path) -> None:
    tail = 'on_bad_row = "dead_letter"\nmax_bad_rows = 7\n'
    project = project_of(
        tmp_path,
        f'[[pipeline]]\nid = "a"\nsource = {{ connector = "files" }}\ntables = ["a"]\n{tail}'
        f'[[pipeline]]\nid = "b"\nsource = {{ connector = "postgres" }}\ntables = ["b"]\n{tail}'
        '[[pipeline]]\nid = "c"\nsource = { connector = "files" }\ntables = ["c"]\n'
        '[[pipeline]]\nid = "d"\nsource = { connector = "files" }\ntables = ["d"]\non_bad_row = "refuse"\n'
        '[[pipeline]]\nid = "e"\nsource = { connector = "postgres" }\ntables = ["e"]\n',
    )
    assert [loaded.spec.bad_rows_kept for loaded in project.pipelines] == [7, 7, limits.MAX_BAD_ROWS, 0, 0]
    unsupported = [(part.pipeline, part.key) for part in project.unsupported if part.key != "source.connector"]
    assert unsupported == [("b", "on_bad_row"), ("b", "max_bad_rows")]


def test_an_unsupported_part_of_the_project_refuses_every_pipeline(tmp_path: Path) -> None:
    plain = '[[pipeline]]\nid = "plain"\nsource = { connector = "files" }\ntables = ["p"]\n'
    project = project_of(tmp_path, plain, environ={"HEADWATER_ENCRYPTION__KEY_SOURCE": "env:K"})
    with pytest.raises(HeadwaterError) as caught:
        project.refuse_unsupported(["plain"])
    assert str(caught.value.places[0]) == "environment variable HEADWATER_ENCRYPTION__KEY_SOURCE"


def test_a_connector_that_exists_is_supported_whatever_was_planned(tmp_path: Path) -> None:
    (tmp_path / "headwater.toml").write_text(SEED_BACKFILL.partition("[pipeline.backfill]")[0])
    project = load_project(tmp_path, connectors={"github"}, environ={})
    assert project.unsupported == ()


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    environ = {
        "HEADWATER_CONTEXT__CATALOG": "postgresql://me@db/shop",
        "HEADWATER_SPARK__MASTER": "spark://host:7077",
        "HEADWATER_SPARK__CONF": '{"spark.x": 1}',
        "HEADWATER_CLOCK_OFFSET_US": "5",
    }
    project = project_of(tmp_path, '[spark]\nmaster = "local[1]"\ndriver_memory = "1g"\n', environ=environ)
    assert project.spec.context.catalog == "postgresql://me@db/shop"
    assert (project.spec.spark.master, project.spec.spark.driver_memory) == ("spark://host:7077", "1g")
    assert project.spec.spark.conf == {"spark.x": "1"}


@pytest.mark.parametrize("drop", ["s3://bucket/in", "~/in", ".", "..", "/", "in/.."])
def test_what_cannot_be_a_drop_folder_is_refused(tmp_path: Path, drop: str) -> None:
    (tmp_path / "headwater.toml").write_text(f'[project]\nname = "shop"\ndrop = "{drop}"\n')
    with pytest.raises(HeadwaterError) as error:
        load_project(tmp_path, connectors=set(), environ={})
    assert (error.value.code, [place.line for place in error.value.places]) == ("HW-M03", [3])


@pytest.mark.parametrize("drop", ["in", "../in", "/somewhere/in"])
def test_a_drop_folder_may_lie_anywhere_else(tmp_path: Path, drop: str) -> None:
    assert project_of(tmp_path, f'[project]\nname = "shop"\ndrop = "{drop}"\n').spec.project.drop == drop


def test_the_defaults_of_an_empty_project(tmp_path: Path) -> None:
    root = tmp_path / "My Shop 2"
    root.mkdir()
    project = project_of(root)
    assert project.name == "my_shop_2"
    assert project.store_root == root / ".headwater" / "context" / "my_shop_2"
    assert (project.spec.context.catalog, project.spec.spark.master) == ("sqlite", "local[*]")
    assert project.spec.spark.conf == {}


def test_a_good_project_is_loaded_without_scanners_and_editors(tmp_path: Path) -> None:
    project_of(tmp_path, CONTRACT.partition('[[pipeline]]\nid = "currency"')[0].replace('poll = "10s"\n', ""))
    script = (
        "import sys\nfrom pathlib import Path\nfrom headwater.manifest.load import load_project\n"
        f"project = load_project(Path({str(tmp_path)!r}), connectors={{'files'}}, environ={{}})\n"
        "assert len(project.pipelines) == 1 and not project.unsupported\n"
        "heavy = {'tomlkit', 'jsonschema', 'pyarrow', 'duckdb', 'sqlalchemy', 'pyspark',"
        " 'headwater.manifest.scan_toml', 'headwater.manifest.scan_json', 'headwater.manifest.edit'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


MINIMAL = '[project]\nname = "p"\n'


@pytest.mark.parametrize("name", ["pipe.toml", "pipe.json"])
def test_a_pipe_among_the_manifest_files_is_refused_and_not_waited_for(tmp_path: Path, name: str) -> None:
    (tmp_path / "headwater.toml").write_text(MINIMAL)
    (tmp_path / "pipelines").mkdir()
    os.mkfifo(tmp_path / "pipelines" / name)
    with pytest.raises(HeadwaterError, match=f"cannot read `pipelines/{name}`: it is not a regular file"):
        load_project(tmp_path, connectors=CONNECTORS)


def test_a_link_among_the_manifest_files_stays_inside_the_project(tmp_path: Path) -> None:
    """Kubernetes mounts files as links beside each other."""
    root = tmp_path / "project"
    (root / "pipelines/..data").mkdir(parents=True)
    (root / "headwater.toml").write_text(MINIMAL)
    pipeline = '{"id": "a", "source": {"connector": "files", "config": {"path": "x"}}, "tables": ["a"]}'
    (root / "pipelines/..data/a.json").write_text(pipeline)
    (root / "pipelines/a.json").symlink_to("..data/a.json")
    assert [loaded.spec.id for loaded in load_project(root, connectors=CONNECTORS).pipelines] == ["a"]
    (tmp_path / "b.json").write_text(pipeline.replace('"a"', '"b"'))
    (root / "pipelines/b.json").symlink_to("../../b.json")
    with pytest.raises(HeadwaterError, match=r"cannot read `pipelines/b\.json`: it is a symbolic link that leads out"):
        load_project(root, connectors=CONNECTORS)


def test_a_loop_of_links_among_the_manifest_files_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "headwater.toml").write_text(MINIMAL)
    (tmp_path / "pipelines/loop.toml").symlink_to("loop.toml")
    with pytest.raises(HeadwaterError, match=r"cannot read `pipelines/loop\.toml`: "):
        load_project(tmp_path, connectors=CONNECTORS)

"""Edits change what they name and nothing else; nothing is written that would not load."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.base.errors import HeadwaterError
from headwater.manifest.edit import (
    EditPlan,
    convert_pipeline,
    create_pipeline,
    edit_pipeline,
    write_changes,
)
from headwater.manifest.load import Project, load_project

TOML = """# the project
[project]
name = "shop" # its name

# what comes in
[[pipeline]]
id = "orders" # never change this
source = { connector = "files", config = { path = "data/*.ndjson" } } # local files

# the one table
[[pipeline.tables]]
name = "orders"
# what makes a row
primary_key = [
  "id", # from the shop
  "line", # from the till
]

[pipeline.tables.columns] # declared
id = "long" # exact
line = "int"

# what else comes in
[[pipeline]]
id = "currency"
tables = ["currency", "rates"] # short
source.connector = "files"
source.config.path = "c/*.csv"
# the end
"""
JSON = """{
    "$schema": "https://headwater.dev/schemas/v1/pipeline.json",
    "id": "items",
    "source": {"connector": "files", "config": {"path": "i/*.json"}},
    "tables": [ "items",
                {"name": "stock", "mode": "replace"} ]
}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "headwater.toml").write_text(TOML)
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "items.json").write_text(JSON)
    return tmp_path


def judge_of(root: Path) -> Callable[[Mapping[str, str | None]], Project]:
    def judge(overlay: Mapping[str, str | None]) -> Project:
        return load_project(root, connectors={"files"}, environ={}, overlay=overlay)

    return judge


def files_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def edited(root: Path, pipeline: str, *, set: dict[str, Any] | None = None, unset: tuple[str, ...] = ()) -> str:
    plan = edit_pipeline(root, pipeline, set=set, unset=unset, judge=judge_of(root))
    (text,) = plan.changes.values()
    assert text is not None
    return text


@pytest.mark.parametrize(
    ("set_", "unset", "old", "new"),
    [
        ({"schedule": "every 15m"}, (), "# local files\n", '# local files\nschedule = "every 15m"\n'),
        ({"source.config.format": "csv"}, (), '"data/*.ndjson" }', '"data/*.ndjson", format = "csv" }'),
        ({"source.config.path": "x"}, (), '"data/*.ndjson"', '"x"'),
        ({"tables.orders.mode": "upsert"}, (), "]\n\n[pipeline.tables.columns]", ']\nmode = "upsert"\n\n[pipeline.tables.columns]'),
        ({"tables[0].columns.amount": "real"}, (), 'line = "int"\n', 'line = "int"\namount = "real"\n'),
        ({"tables[0].columns.id.default": 0}, (), 'id = "long" # exact', 'id = { type = "long", default = 0 } # exact'),
        ({"tables[0].primary_key[2]": "shop"}, (), '# from the till\n', '# from the till\n  "shop",\n'),
        ({}, ("tables.orders.primary_key[0]",), '  "id", # from the shop\n', ""),
        ({}, ("tables.orders.primary_key[1]",), '  "line", # from the till\n', ""),
        ({}, ("tables[0].columns.line",), 'line = "int"\n', ""),
        ({"tables[1]": {"name": "more"}}, (), 'line = "int"\n', 'line = "int"\n\n[[pipeline.tables]]\nname = "more"\n'),
        ({"backfill.window": "30d"}, (), "# local files\n", '# local files\nbackfill = { window = "30d" }\n'),
    ],
)  # fmt: skip
def test_a_toml_edit_changes_its_place_and_no_other_byte(
    root: Path, set_: dict[str, Any], unset: tuple[str, ...], old: str, new: str
) -> None:
    assert TOML.count(old) == 1
    assert edited(root, "orders", set=set_, unset=unset) == TOML.replace(old, new)


@pytest.mark.parametrize(
    ("set_", "unset", "old", "new"),
    [
        ({"source.config.format": "csv"}, (), '"c/*.csv"\n', '"c/*.csv"\nsource.config.format = "csv"\n'),
        ({"tables[2]": "more"}, (), '"rates"]', '"rates", "more"]'),
        ({}, ("tables.rates",), ', "rates"]', "]"),
        ({"tables.rates.mode": "replace"}, (), '"rates"]', '{ name = "rates", mode = "replace" }]'),
        ({"incremental": "at"}, (), '"c/*.csv"\n', '"c/*.csv"\nincremental = "at"\n'),
    ],
)
def test_dotted_keys_and_short_forms_are_edited_in_place(
    root: Path, set_: dict[str, Any], unset: tuple[str, ...], old: str, new: str
) -> None:
    assert edited(root, "currency", set=set_, unset=unset) == TOML.replace(old, new)


@pytest.mark.parametrize(
    ("set_", "unset", "old", "new"),
    [
        ({"poll": "1s"}, (), '"replace"} ]\n', '"replace"} ],\n    "poll": "1s"\n'),
        ({"source.config.format": "json"}, (), '"i/*.json"}', '"i/*.json", "format": "json"}'),
        ({"tables.stock.mode": "append"}, (), '"replace"', '"append"'),
        ({"tables.items.mode": "replace"}, (), '[ "items"', '[ { "name": "items", "mode": "replace" }'),
        ({}, ("tables.stock.mode",), ', "mode": "replace"', ""),
        ({}, ("tables.items",), '"items",\n                ', ""),
    ],
)
def test_a_json_edit_changes_its_place_and_no_other_byte(
    root: Path, set_: dict[str, Any], unset: tuple[str, ...], old: str, new: str
) -> None:
    assert edited(root, "items", set=set_, unset=unset) == JSON.replace(old, new)


def test_line_ends_and_byte_order_mark_survive_an_edit(root: Path) -> None:
    (root / "headwater.toml").write_bytes(b"\xef\xbb\xbf" + TOML.replace("\n", "\r\n").encode())
    text = edited(root, "orders", set={"incremental": "at"})
    assert text == "\ufeff" + TOML.replace("# local files\n", '# local files\nincremental = "at"\n').replace(
        "\n", "\r\n"
    )


@pytest.mark.parametrize(
    ("set_", "unset", "code"),
    [
        ({"tabels": ["x"]}, (), "HW-M05"),
        ({"tables.orders.mode": "upsrt"}, (), "HW-M03"),
        ({"source.config.password": "hunter2"}, (), "HW-M08"),
        ({"tables[0].as": "currency"}, (), "HW-M04"),
        ({"id": "currency"}, (), "HW-M04"),
        ({"schedule": None}, (), "HW-M03"),
        ({"tables[7]": "x"}, (), "HW-M05"),
        ({"a..b": 1}, (), "HW-U01"),
        ({"source.connector.x": 1}, (), "HW-M05"),
        ({}, ("nothing",), "HW-M05"),
        ({}, ("source",), "HW-M03"),
    ],
)
def test_an_edit_that_would_not_load_is_refused_and_changes_nothing(
    root: Path, set_: dict[str, Any], unset: tuple[str, ...], code: str
) -> None:
    before = files_of(root)
    with pytest.raises(HeadwaterError) as caught:
        edit_pipeline(root, "orders", set=set_, unset=unset, judge=judge_of(root))
    assert caught.value.code == code
    assert "hunter2" not in caught.value.render()
    assert files_of(root) == before


def test_an_edit_may_mend_a_pipeline_that_does_not_load(root: Path) -> None:
    (root / "headwater.toml").write_text(TOML.replace('line = "int"', 'line = "itn"\nx = "y"'))
    text = edited(root, "orders", set={"tables[0].columns.line": "int"}, unset=("tables[0].columns.x",))
    assert text == TOML


def test_an_edit_that_changes_nothing_has_no_changes(root: Path) -> None:
    plan = edit_pipeline(root, "orders", set={"source.config.path": "data/*.ndjson"}, judge=judge_of(root))
    assert plan == EditPlan("orders", {})


def test_create_writes_a_json_file_that_loads(root: Path) -> None:
    definition = {"id": "new-one", "source": {"connector": "files", "config": {"path": "n"}}, "tables": ["n"]}
    plan = create_pipeline(root, definition, judge=judge_of(root))
    write_changes(root, plan)
    assert json.loads((root / "pipelines" / "new-one.json").read_text()) == definition
    assert load_project(root, connectors={"files"}, environ={}).pipeline("new-one").file == "pipelines/new-one.json"


def test_create_as_toml_appends_to_the_project(root: Path) -> None:
    definition = {"id": "n", "source": {"connector": "files"}, "tables": [{"name": "n", "columns": {"a": "long"}}]}
    plan = create_pipeline(root, definition, to="toml", judge=judge_of(root))
    expected = '\n[[pipeline]]\nid = "n"\nsource = { connector = "files" }\n\n[[pipeline.tables]]\nname = "n"\ncolumns = { a = "long" }\n'
    assert plan.changes == {"headwater.toml": TOML + expected}


@pytest.mark.parametrize(
    ("definition", "code"),
    [
        ({"id": "orders"}, "HW-M04"),
        ({"id": "../evil"}, "HW-M03"),
        ({"source": {"connector": "files"}}, "HW-M03"),
        ({"id": "a", "source": {"connector": "flies"}, "tables": ["a"]}, "HW-M06"),
        ({"id": "a", "source": {"connector": "files"}, "tables": ["a"], "poll": None}, "HW-M03"),
        ({"id": "taken", "source": {"connector": "files"}, "tables": ["a"]}, "HW-M12"),
    ],
)
@pytest.mark.parametrize("to", ["json", "toml"])
def test_a_pipeline_that_would_not_load_is_not_created(
    root: Path, definition: dict[str, Any], code: str, to: Any
) -> None:
    if code == "HW-M12":
        (root / "pipelines" / "taken.json").write_text(JSON.replace("items", "other").replace("stock", "s2"))
        to = "json"
    before = files_of(root)
    with pytest.raises(HeadwaterError) as caught:
        create_pipeline(root, definition, to=to, judge=judge_of(root))
    assert caught.value.code == code
    assert files_of(root) == before


def test_convert_moves_a_pipeline_out_of_the_project_and_tells_of_its_comments(root: Path) -> None:
    before = judge_of(root)({})
    plan = convert_pipeline(root, "orders", to="json", judge=judge_of(root))
    assert plan.comments_lost
    assert list(plan.changes) == ["pipelines/orders.json", "headwater.toml"]
    write_changes(root, plan)
    after = judge_of(root)({})
    assert after.pipeline("orders").spec == before.pipeline("orders").spec
    rest = (root / "headwater.toml").read_text()
    assert rest == TOML[: TOML.index("[[pipeline]]")] + TOML[TOML.index("\n# what else") :]


def test_convert_keeps_the_schema_address_both_ways(root: Path) -> None:
    spec = judge_of(root)({}).pipeline("items").spec
    plan = convert_pipeline(root, "items", to="toml", judge=judge_of(root))
    assert not plan.comments_lost
    write_changes(root, plan)
    text = (root / "pipelines" / "items.toml").read_text()
    assert text.startswith("#:schema https://headwater.dev/schemas/v1/pipeline.json\nid = ")
    assert not (root / "pipelines" / "items.json").exists()
    assert judge_of(root)({}).pipeline("items").spec == spec
    back = convert_pipeline(root, "items", to="json", judge=judge_of(root))
    assert not back.comments_lost
    assert json.loads(back.changes["pipelines/items.json"] or "") == json.loads(JSON)


def test_convert_to_the_same_format_does_nothing(root: Path) -> None:
    assert convert_pipeline(root, "items", to="json", judge=judge_of(root)) == EditPlan("items", {})


def test_convert_does_not_overwrite(root: Path) -> None:
    (root / "pipelines" / "orders.json").write_text(JSON.replace("items", "other").replace("stock", "s2"))
    with pytest.raises(HeadwaterError) as caught:
        convert_pipeline(root, "orders", to="json", judge=judge_of(root))
    assert caught.value.code == "HW-M12"


def test_an_unknown_pipeline_is_not_edited(root: Path) -> None:
    with pytest.raises(HeadwaterError) as caught:
        edit_pipeline(root, "order", set={"poll": "1s"}, judge=judge_of(root))
    assert (caught.value.code, caught.value.hint) == ("HW-M11", "did you mean `orders`?")


def test_a_write_that_fails_puts_the_files_before_it_back(root: Path) -> None:
    before = files_of(root)
    (root / "blocked").write_text("a file, not a directory")
    plan = EditPlan("x", {"headwater.toml": "changed", "new.toml": "x", "blocked/x": "x"})
    with pytest.raises(HeadwaterError, match="HW-T05"):
        write_changes(root, plan)
    (root / "blocked").unlink()
    assert files_of(root) == before


NAMES = st.sampled_from(["a", "b_2", "total price", "ü", "x.y", 'q"q'])
PLAIN = st.text(max_size=6).filter(lambda text: not any("\ud800" <= mark <= "\udfff" for mark in text))
SCALARS = st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | PLAIN.map(lambda text: f"v{text}")
CONFIG = st.dictionaries(
    NAMES, st.recursive(SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(NAMES, v, max_size=2), max_leaves=5), max_size=4
)  # fmt: skip
TABLE = st.fixed_dictionaries(
    {"name": st.sampled_from(["t1", "t2", "t3"])},
    optional={
        "mode": st.sampled_from(["append", "replace"]),
        "columns": st.dictionaries(st.sampled_from(["c", "d e", "f"]), st.sampled_from(["long", "string"]), min_size=1),
        "compaction": st.fixed_dictionaries({"trigger_run_count": st.integers(1, 99)}),
    },
)
PIPELINES = st.fixed_dictionaries(
    {
        "id": st.just("p"),
        "source": st.fixed_dictionaries({"connector": st.just("files"), "config": CONFIG}),
        "tables": st.lists(TABLE | st.just("short"), min_size=1, max_size=3, unique_by=lambda t: t if isinstance(t, str) else t["name"]),
    },
    optional={"schedule": st.just("every 5m"), "backfill": st.just({"window": "30d", "parallelism": 2})},
)  # fmt: skip
EDITS = st.lists(
    st.tuples(st.just("source.config.k"), SCALARS)
    | st.tuples(st.just("source.config"), CONFIG)
    | st.tuples(st.just("poll"), st.sampled_from(["1s", "2m"]))
    | st.tuples(st.just("tables[0].columns.z"), st.sampled_from(["int", "date"]))
    | st.tuples(st.just("tables[0].compaction.retain_runs"), st.just("7d"))
    | st.tuples(st.just("tables[0]"), TABLE.map(lambda table: {**table, "name": "t9"}))
    | st.tuples(st.just("backfill.window"), st.just("9d"))
    | st.tuples(st.just("windows"), st.just([{"start": "02:00", "duration": "1h"}]))
    | st.tuples(st.just("retry"), st.just({"immediately": 1})),
    min_size=1,
    max_size=4,
    unique_by=lambda edit: edit[0],
)


def apply_plainly(definition: dict[str, Any], path: str, value: Any) -> None:
    """What an edit means, on plain data."""
    steps = path.replace("[0]", ".0").split(".")
    node: Any = definition
    for index, step in enumerate(steps[:-1]):
        key: Any = int(step) if step.isdigit() else step
        if isinstance(node, list):
            if isinstance(node[key], str):
                node[key] = {"name": node[key]}
            node = node[key]
        else:
            node = node.setdefault(key, [] if steps[index + 1].isdigit() else {})
    last: Any = int(steps[-1]) if steps[-1].isdigit() else steps[-1]
    node[last] = value


def with_comments(toml: str) -> tuple[str, list[str]]:
    """The text with a comment above and behind every line that can have one."""
    lines: list[str] = []
    comments: list[str] = []
    inside = False
    for number, line in enumerate(toml.removesuffix("\n").split("\n")):
        if not inside and line:
            comments += [f"# above {number}", f"# behind {number}"]
            lines += [f"# above {number}", line + f" # behind {number}"]
        else:
            lines.append(line)
        inside ^= line.count("'''") % 2 == 1
    return "\n".join(lines) + "\n", comments


@settings(max_examples=50, deadline=None)
@given(PIPELINES, EDITS, st.sampled_from(["json", "toml", "inline"]))
def test_an_edit_loads_as_the_edited_definition(
    tmp_path_factory: pytest.TempPathFactory, definition: dict[str, Any], edits: list[tuple[str, Any]], form: str
) -> None:
    from headwater.manifest.render import pipeline_as_json, pipeline_as_toml

    root = tmp_path_factory.mktemp("edit")
    (root / "pipelines").mkdir()
    (root / "headwater.toml").write_text('# mine\n[project]\nname = "x"\n')
    comments = ["# mine"]
    if form == "json":
        (root / "pipelines" / "p.json").write_text(pipeline_as_json(definition))
    else:
        text = pipeline_as_toml(definition, inline=form == "inline")
        if "'''" not in text:
            text, comments = with_comments(text)
        if form == "inline":
            (root / "headwater.toml").write_text(
                text + '\n# other\n[[pipeline]]\nid = "z"\nsource = { connector = "files" }\ntables = ["z"]\n'
            )
            comments += ["# other"]
        else:
            (root / "pipelines" / "p.toml").write_text(text)
    plan = edit_pipeline(root, "p", set=dict(edits), judge=judge_of(root))
    write_changes(root, plan)
    for path, value in edits:
        apply_plainly(definition, path, value)
    (root / "expected").mkdir()
    (root / "expected" / "headwater.toml").write_text("")
    (root / "expected" / "pipelines").mkdir()
    (root / "expected" / "pipelines" / "p.json").write_text(json.dumps(definition))
    expected = judge_of(root / "expected")({}).pipeline("p").spec
    assert judge_of(root)({}).pipeline("p").spec == expected
    replaced = any(path in ("tables[0]", "source.config") for path, _ in edits)
    if form != "json" and not replaced:
        text = "".join(text or "" for text in plan.changes.values()) or (root / "headwater.toml").read_text()
        if form == "toml" and not plan.changes:
            text = (root / "pipelines" / "p.toml").read_text()
        assert [comment for comment in comments if comment != "# mine" and comment not in text] == []


@settings(max_examples=40, deadline=None)
@given(PIPELINES, st.booleans())
def test_converting_twice_gives_an_equal_spec(
    tmp_path_factory: pytest.TempPathFactory, definition: dict[str, Any], start_as_json: bool
) -> None:
    root = tmp_path_factory.mktemp("convert")
    (root / "headwater.toml").write_text("")
    judge = judge_of(root)
    first, second = ("json", "toml") if start_as_json else ("toml", "json")
    write_changes(root, create_pipeline(root, definition, to=first, judge=judge))  # type: ignore[arg-type]
    spec = judge({}).pipeline("p").spec
    write_changes(root, convert_pipeline(root, "p", to=second, judge=judge))  # type: ignore[arg-type]
    assert judge({}).pipeline("p").spec == spec
    write_changes(root, convert_pipeline(root, "p", to=first, judge=judge))  # type: ignore[arg-type]
    assert judge({}).pipeline("p").spec == spec
    file = judge({}).pipeline("p").file
    if first == "json":
        assert json.loads((root / file).read_text()) == definition
    else:
        assert tomllib.loads((root / file).read_text()) == definition


@pytest.mark.parametrize(
    ("text", "set_", "unset", "expected"),
    [
        (
            'id = "p"\nsource = { connector = "files", config.path = "x" } # s\ntables = ["t"]\n',
            {"source.config.format": "csv"},
            (),
            'id = "p"\nsource = { connector = "files", config = { path = "x", format = "csv" } } # s\ntables = ["t"]\n',
        ),
        (
            'id = "p"\ntables = ["t"]\n# c\n[source.config]\npath = "x"\n',
            {"source.connector": "files"},
            (),
            'id = "p"\ntables = ["t"]\n# c\n[source]\nconnector = "files"\n\n[source.config]\npath = "x"\n',
        ),
        (
            'id = "p"\nsource.connector = "files"\ntables = ["t"]\nretry.immediately = 1\n',
            {},
            ("retry.immediately",),
            'id = "p"\nsource.connector = "files"\ntables = ["t"]\nretry = {}\n',
        ),
        (
            'id = "p"\nsource.connector = "files"\n[[tables]]\nname = "a"\n[[tables]] # two\nname = "b" # b\n',
            {"tables": ["c"]},
            (),
            'id = "p"\nsource.connector = "files"\ntables = ["c"]\n',
        ),
        (
            'id = "p"\nsource.connector = "files"\n[[tables]]\nname = "a"\n\n# two\n[[tables]]\nname = "b" # b\n',
            {"tables.a": "c"},
            (),
            'id = "p"\nsource.connector = "files"\n[[tables]]\nname = "c"\n\n# two\n[[tables]]\nname = "b" # b\n',
        ),
        (
            'id = "p"\nsource = {connector = "files"}\ntables = [\n  "a", # first\n  "b" # second\n]',
            {"tables[2]": "c", "poll": "1s"},
            (),
            'id = "p"\nsource = {connector = "files"}\ntables = [\n  "a", # first\n  "b", # second\n  "c"\n]\npoll = "1s"\n',
        ),
        (
            'id = "p"\nsource = {connector = "files"}\ntables = [\n  "a", # first\n  "b" # second\n]\n',
            {},
            ("tables.b",),
            'id = "p"\nsource = {connector = "files"}\ntables = [\n  "a", # first\n]\n',
        ),
    ],
)
def test_unusual_ways_to_write_toml_are_edited_too(
    root: Path, text: str, set_: dict[str, Any], unset: tuple[str, ...], expected: str
) -> None:
    (root / "pipelines" / "p.toml").write_text(text)
    assert edited(root, "p", set=set_, unset=unset) == expected


def test_pipelines_in_an_inline_list_are_edited_and_converted(root: Path) -> None:
    text = 'pipeline = [\n  { id = "p", source = { connector = "files" }, tables = ["p"] }, # one\n'
    text += '  { id = "q", source = { connector = "files" }, tables = ["q"] }, # two\n]\n'
    (root / "headwater.toml").write_text(text)
    assert edited(root, "q", set={"poll": "1s"}) == text.replace('["q"] }', '["q"], poll = "1s" }')
    plan = convert_pipeline(root, "p", to="json", judge=judge_of(root))
    assert plan.changes["headwater.toml"] == text[: text.index("  {")] + text[text.index('  { id = "q"') :]

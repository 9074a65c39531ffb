"""A ripple's code over tables: what it sees, what it may return, and what its errors say."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater.base.errors import HeadwaterError, Position
from headwater.catalog import records as r
from headwater.spark.ripples import TableInput, running
from headwater.spark.user_code import Code, SqlCode
from headwater.storage.part_writer import rewrite, rows_without
from spark.models import Models

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDERS = {"id": "long", "amount": "real", "at": "timestamp", "note": "string"}
NANOS = 1_700_000_000_123_456_789


@pytest.fixture
def models(tmp_path: Path, spark: SparkSession) -> Iterator[Models]:
    opened = Models(tmp_path, spark)
    opened.put("orders", ORDERS, [(1, 10.0, NANOS, "secret-1"), (2, 20.0, -1, "secret-2"), (3, 0.0, None, None)])
    yield opened
    opened.close()


@contextmanager
def result(models: Models, code: Code, inputs: dict[str, TableInput] | None = None) -> Iterator[DataFrame]:
    given = models.input("orders") if inputs is None else inputs
    with running(
        models.spark, "out", code, inputs=given, freshness_us=2_000_000, previous_freshness_us=1_000_000
    ) as frame:
        yield frame


def rows(models: Models, code: Code | str, inputs: dict[str, TableInput] | None = None) -> list[tuple[Any, ...]]:
    with result(models, SqlCode(code) if isinstance(code, str) else code, inputs) as frame:
        return sorted(tuple(row) for row in frame.collect())


def failure(models: Models, code: Code, inputs: dict[str, TableInput] | None = None) -> HeadwaterError:
    with pytest.raises(HeadwaterError) as caught:
        rows(models, code, inputs)
    assert "secret" not in caught.value.render()
    assert "headwater/" not in caught.value.render()
    return caught.value


def test_a_query_sees_the_tables_own_columns(models: Models) -> None:
    with result(models, SqlCode("select * from orders")) as frame:
        assert frame.columns == ["id", "amount", "at", "note"]
    assert rows(models, "select sum(amount) from Orders where at < now()") == [(30.0,)]


def test_a_query_that_names_them_sees_the_views_other_columns_too(models: Models) -> None:
    assert rows(models, "select id, AT_NS from orders where _commit_seq > 0 and _run_id is not null and id < 3") == [
        (1, NANOS),
        (2, -1),
    ]
    with result(
        models, SqlCode("select *, '_run_id' as s from orders -- not _ingested_at\n where `at_ns` < 0")
    ) as frame:
        assert frame.columns == ["id", "amount", "at", "note", "at_ns", "s"]


def test_nothing_of_a_run_is_left_in_the_session(models: Models) -> None:
    assert rows(models, "select count(*) from orders") == [(3,)]
    code = models.code(
        "models/m.py",
        "def out(orders, context):\n"
        "    context.spark.conf.set('spark.sql.shuffle.partitions', '77')\n"
        "    orders.createOrReplaceTempView('left_over')\n"
        "    return orders\n",
    )
    assert len(rows(models, code)) == 3
    assert [table.name for table in models.spark.catalog.listTables()] == []
    assert models.spark.conf.get("spark.sql.shuffle.partitions") != "77"


def test_runs_of_several_threads_see_each_their_own_table(models: Models) -> None:
    for number in range(4):
        models.put(f"t{number}", {"n": "long"}, [(number,)])

    def read(number: int) -> list[tuple[Any, ...]]:
        given = models.input(f"t{number % 4}")[f"t{number % 4}"]
        return rows(models, "select n from the_table", {"the_table": given})

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(read, range(12))) == [[(number % 4,)] for number in range(12)]


@pytest.mark.parametrize(
    ("sql", "place", "message", "hint"),
    [
        ("select\n  id,\n  amoun\nfrom orders", (12, 3), "line 3, column 3: A column, variable", ""),
        ("selec 1", (10, 8), "line 1, column 1: Syntax error at or near 'selec'", ""),
        ("select * from order_", (10, 22), "The table or view `order_` cannot be found", "did you mean `orders`?"),
        ("select * from elsewhere", (10, 22), "`elsewhere` cannot be found", "it can read: orders"),
        ("select foo(id) from orders", (10, 8), "calls `foo`, which is no function that", "a Python ripple"),
        ("select id, sum(amount) from orders", (10, 8), "GROUP BY", ""),
        (
            "select id,\n cast(note as int) as n from orders",
            (11, 2),
            "(`cast(note as int)`): CAST_INVALID_INPUT",
            "fix the rows",
        ),
        (
            "select 1 div id as x,\n amount / (id - 1) as y from orders",
            (11, 2),
            "DIVIDE_BY_ZERO: Division by zero",
            "fix the rows",
        ),
        ("select raise_error(note) from orders", (10, 8), "failed: USER_RAISED_EXCEPTION: ...", "fix the rows"),
    ],
)
def test_an_error_of_a_query_says_where_in_the_users_text_and_no_value(
    models: Models, sql: str, place: tuple[int, int], message: str, hint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    error = failure(models, SqlCode(sql, Position("headwater.toml", 10, 8)))
    assert error.code == "HW-R01"
    assert message in error.message
    assert "`out`" in error.message
    assert hint in error.hint
    assert error.places == (Position("headwater.toml", *place),)
    assert capfd.readouterr() == ("", "")


def test_an_error_of_a_query_that_stands_nowhere_has_no_place(models: Models) -> None:
    assert failure(models, SqlCode("select nope from orders")).places == ()


def test_a_function_gets_the_tables_that_its_parameters_name(models: Models) -> None:
    models.put("rates", {"r": "real"}, [(2.0,)])
    code = models.code(
        "models/m.py",
        "def out(orders, *, rates, limit=2):\n"
        "    return orders.crossJoin(rates).where(f'id <= {limit}').selectExpr('id', 'amount * r as a')\n",
    )
    both = models.input("orders") | models.input("rates")
    assert rows(models, code, both) == [(1, 20.0), (2, 40.0)]
    code = models.code("models/all.py", "def out(**tables):\n    return tables['rates']\n")
    assert rows(models, code, both) == [(2.0,)]


def test_a_context_tells_of_the_run(models: Models) -> None:
    code = models.code(
        "models/m.py",
        "def out(context):\n"
        "    c = context\n"
        "    wide = c.every_column('orders')\n"
        "    assert '_commit_seq' in wide.columns and 'at_ns' in wide.columns\n"
        "    return c.spark.createDataFrame([(c.freshness_us, c.previous_freshness_us)], 'a long, b long')\n",
    )
    assert rows(models, code) == [(2_000_000, 1_000_000)]


CHANGED = "def out(context):\n    return context.changed_rows('t').selectExpr('id', 'v')\n"


def test_changed_rows_are_those_that_arrived_since(models: Models) -> None:
    columns = {"id": "long", "v": "string"}
    first = models.put("t", columns, [(1, "old"), (2, "old")], mode="upsert", key="id")
    second = models.put("t", columns, [(2, "new"), (3, "new")])
    code = models.code("models/m.py", CHANGED)
    assert rows(models, code, models.input("t")) == [(1, "old"), (2, "new"), (3, "new")]
    assert rows(models, code, models.input("t", since_seq=first)) == [(2, "new"), (3, "new")]
    assert rows(models, code, models.input("t", since_seq=second)) == []


def test_rows_that_were_only_written_again_have_not_arrived(models: Models) -> None:
    first = models.put("t", {"id": "long", "v": "string"}, [(1, "a"), (2, "b")])
    (file,) = models.state("t").files
    again = rewrite(
        models.store.root,
        rows_without(models.store.root, file, ()),
        schema=models.state("t").schema,
        directory=f"{file.path}.kept",
        partition=0,
        task_attempt=0,
    )
    added = r.FilesAdded(table="t", schema_id=1, run_id=file.run_id, files=again)
    models.commit(added, r.FilesRemoved(table="t", paths=(file.path,)))
    models.put("t", {"id": "long", "v": "string"}, [(3, "c")])
    code = models.code("models/m.py", CHANGED)
    assert rows(models, code, models.input("t", since_seq=first)) == [(3, "c")]
    assert rows(models, code, models.input("t", since_seq=first - 1)) == [(1, "a"), (2, "b"), (3, "c")]


def test_after_a_table_was_rewritten_all_its_rows_have_changed(models: Models) -> None:
    columns = {"id": "long", "v": "string"}
    first = models.put("t", columns, [(1, "a")])
    (file,) = models.state("t").files
    models.put("t", columns, [(2, "b")])
    models.commit(r.FilesRemoved(table="t", paths=(file.path,), rewrites=True))
    last = models.put("t", columns, [(3, "c")])
    code = models.code("models/m.py", CHANGED)
    assert rows(models, code, models.input("t", since_seq=first)) == [(2, "b"), (3, "c")]
    assert rows(models, code, models.input("t", since_seq=first + 1)) == [(2, "b"), (3, "c")]
    assert rows(models, code, models.input("t", since_seq=last - 1)) == [(3, "c")]


def test_a_table_that_the_ripple_does_not_read_has_no_changed_rows(models: Models) -> None:
    error = failure(models, models.code("models/m.py", "\n" + CHANGED))
    assert error.message == "the ripple does not read a table `t`"
    assert error.places == (Position("models/m.py", 3),)


def test_a_changed_file_is_read_again_with_the_files_beside_it(models: Models) -> None:
    text = (
        "from .factor import FACTOR\ndef out(orders):\n    return orders.selectExpr(f'id * {FACTOR} as x').limit(1)\n"
    )
    for factor in (2, 3):
        (models.root / "models").mkdir(exist_ok=True)
        (models.root / "models" / "factor.py").write_text(f"FACTOR = {factor}\n")
        assert rows(models, models.code("models/m.py", text)) == [(factor,)]
    assert sorted(path.name for path in (models.root / "models").iterdir()) == ["factor.py", "m.py"]


def test_two_files_of_one_name_do_not_meet(models: Models) -> None:
    text = "from .which import NAME\ndef out(orders):\n    return orders.selectExpr(f\"'{NAME}' as x\").limit(1)\n"
    found = []
    for name in ("a", "b"):
        code = models.code(f"{name}/m.py", text)
        (models.root / name / "which.py").write_text(f"NAME = {name!r}\n")
        found += rows(models, code)
    assert found == [("a",), ("b",)]


WORKER = """\
from dataclasses import dataclass

from pyspark.sql.functions import udf

from .words import shout

@dataclass
class Mark:
    sign: "str"

mark = Mark("!")

def loud(text):
    return shout(text) + mark.sign

def out(orders):
    return orders.select("id", udf(loud)("note").alias("loud"))
"""


def test_functions_of_the_users_files_run_in_sparks_workers(models: Models) -> None:
    code = models.code("models/m.py", WORKER)
    helper = models.root / "models" / "words.py"
    helper.write_text("def shout(text):\n    return (text or '-').upper()\n")
    assert rows(models, code) == [(1, "SECRET-1!"), (2, "SECRET-2!"), (3, "-!")]
    helper.write_text("\n\ndef shout(text):\n    return text.upper()\n")
    error = failure(models, code)
    assert error.message == "`out` failed: a function for rows raised AttributeError at `return text.upper()`"
    assert error.places == (Position("models/words.py", 4),)


def test_arrow_and_pandas_results_are_taken(models: Models) -> None:
    arrow = "import pyarrow as pa\ndef out(orders):\n    return pa.table({'n': [1, None], 's': ['a', 'b']})\n"
    with result(models, models.code("models/a.py", arrow)) as frame:
        assert [tuple(row) for row in frame.collect()] == [(1, "a"), (None, "b")]
    pandas = "def out(orders):\n    return orders.toPandas()[['id', 'at']].head(1)\n"
    with result(models, models.code("models/p.py", pandas)) as frame:
        ((id_, at),) = frame.selectExpr("id", "unix_micros(at)").collect()
        assert (id_, at) == (1, NANOS // 1000)


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("\ndef out(orders):\n    pass\n", "returned nothing, and `out` is a table", 2),
        ("def out(orders):\n    return 5\n", "returned a `int`", 1),
        ("def out(oders):\n    return oders\n", "a parameter `oders`, which is no table", 1),
        ("def other(orders):\n    return orders\n", "no function `out` in `models/m.py`", 0),
        ("def out(orders)\n    return orders\n", "models/m.py is not valid Python: expected ':'", 1),
        ("import nowhere\ndef out(orders):\n    return orders\n", "there is no module `nowhere`", 1),
        ("def out(orders):\n    raise ValueError(orders.first().note)\n", "ValueError at `raise ValueError(orders", 2),
        ("def out(orders):\n    x = orders.count()\n    exit(x)\n", "raised SystemExit at `exit(x)`", 3),
        (
            "def out(orders):\n    y = 1\n    return orders.select('nope')\n",
            "`return orders.select('nope')`: A column",
            3,
        ),
        ("def out(orders):\n    return orders.selectExpr('int(note)')\n", "`out` (`int(note)`): CAST_INVALID_INPUT", 0),
        (
            "def out(orders):\n    c = orders.note.cast('int')\n    return orders.select(c)\n",
            "`c = orders.note.cast",
            2,
        ),
    ],
)
def test_an_error_of_python_says_where_in_the_users_file_and_no_value(
    models: Models, text: str, message: str, line: int, capfd: pytest.CaptureFixture[str]
) -> None:
    error = failure(models, models.code("models/m.py", text))
    assert error.code == "HW-R01"
    assert message in error.message
    assert error.places == (Position("models/m.py", line),)
    assert capfd.readouterr().err == ""


def test_an_import_by_its_plain_name_is_told_how_to_be_written(models: Models) -> None:
    code = models.code("models/m.py", "import words\ndef out(orders):\n    return orders\n")
    (models.root / "models" / "words.py").write_text("")
    assert failure(models, code).hint == "`words.py` is beside it: write `from .words import ...`"


def test_a_file_that_is_not_there_is_named(models: Models) -> None:
    code = models.code("models/m.py", "")
    code.path.unlink()
    assert failure(models, code).message == "there is no file `models/m.py`"


def test_times_are_utc_whatever_the_platform_says(models: Models) -> None:
    before = models.spark.conf.get("spark.sql.session.timeZone")
    models.spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert rows(models, "select date(at), hour(at) from orders where id = 2") == [(datetime.date(1969, 12, 31), 23)]
    finally:
        models.spark.conf.set("spark.sql.session.timeZone", str(before))

"""Dropped files land once: whatever dies on the way, whoever looks at the same time. On both databases."""

from __future__ import annotations

import gzip
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from contract.children import pool
from contract.dropping import Shop, codes, scan_once, taken
from contract.ingesting import rows_of
from contract.stores import ACTOR, Place
from forked import exit_code
from headwater.app.drop_folder import KEY, PutAway, Taken, take_dropped
from headwater.app.ingest import clear
from headwater.app.workspace import Workspace
from headwater.base import limits
from headwater.base.regular_files import open_below
from headwater.catalog.gc import collect
from headwater.catalog.ledger import ledger_keys
from headwater.catalog.lookup import current_seq, table_states
from headwater.catalog.verify import verify
from headwater.connectors.protocol import SliceGone
from headwater.ingest.dropped_files import DropFolder, Dropped
from headwater.storage.store_files import data_files

UPSERT = """
[[pipeline]]
id = "stock"
source = { connector = "push" }
[[pipeline.tables]]
name = "stock"
primary_key = ["id"]
columns = { id = "long", n = "long" }
"""


def labels(opened: Workspace, table: str = "events") -> list[str]:
    return [str(row["label"]) for row in rows_of(opened.store(), table)]


def seq(opened: Workspace) -> int:
    with opened.store().catalog.snapshot() as connection:
        return current_seq(connection)


def line(label: object, **more: object) -> bytes:
    return json.dumps({"label": str(label), **more}).encode() + b"\n"


def is_clean(opened: Workspace) -> bool:
    """Nothing is on disk that no commit names, and all that one names is there."""
    store = opened.store()
    collect(store, actor=ACTOR, retention_seconds=-1)
    with store.catalog.snapshot() as connection:
        named = {file.path for state in table_states(connection) for file in state.files}
    return set(data_files(store.layout)) == named and not verify(store).problems


def test_thousands_of_files_share_a_few_commits_and_keep_their_order(place: Place) -> None:
    shop = Shop.at(place)
    for n in range(300):
        shop.drop(f"events/{n:04}.ndjson", line(n), age_seconds=3600 - n)
    with shop.opened() as (opened, dropping, news):
        assert not dropping.scan()
        assert taken(news) == {"events": (300, 300, 0)}
        assert labels(opened) == [str(n) for n in range(300)]
        assert seq(opened) <= 3
        news.clear()
        assert not dropping.scan()
        assert (news, seq(opened) <= 3) == ([], True)
        with opened.store().catalog.snapshot() as connection:
            keys = ledger_keys(connection, limit=999)
        assert len(keys) == 300
        assert all(key.key.startswith(KEY) and key.expires_us is None for key in keys)
        assert all(key.fingerprint == "sha256:" + key.key.removeprefix(KEY) for key in keys)


def test_a_known_file_is_skipped_and_not_read_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop.at(place)
    path = shop.drop("events/a.ndjson", line("a"))
    with shop.opened() as (opened, dropping, news):
        dropping.scan()
        monkeypatch.setattr("headwater.connectors.files.streams.open_below", _refuse(path))
        dropping.scan()
        monkeypatch.undo()
        assert (taken(news), codes(news), labels(opened)) == ({"events": (1, 1, 0)}, [], ["a"])
    shop.drop("events/copy.ndjson", line("a"))
    with shop.opened() as (opened, dropping, news):
        dropping.scan()
        assert (news, labels(opened)) == ([], ["a"]), "another process knows it by its bytes, under any name"


def test_the_next_process_reads_no_old_file_that_it_knows(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.base.limits.DROP_HASH_OLD_NS", 0)
    shop = Shop.at(place)
    path = shop.drop("events/a.ndjson", line("a"))
    with shop.opened() as (_, dropping, _news):
        dropping.scan()
    with shop.opened() as (opened, dropping, news):
        monkeypatch.setattr("headwater.connectors.files.streams.open_below", _refuse(path))
        dropping.scan()
        monkeypatch.undo()
        assert (news, labels(opened)) == ([], ["a"])
        assert clear(opened, "events") == 1
        dropping.scan()
        assert labels(opened) == ["a", "a"], "what has landed is known to the ledger alone"


def test_what_was_remembered_of_a_file_and_is_not_so_keeps_it_from_nothing(place: Place) -> None:
    shop = Shop.at(place)
    shop.drop("events/a.ndjson", line("a"))
    with shop.opened() as (opened, dropping, news):
        ((file,), _) = dropping._folder().scan()
        dropping._memory.due([file], now=0.0, now_ns=time.time_ns() + limits.DROP_HASH_OLD_NS)
        dropping._memory.hashed(file, "0" * 64)
        assert dropping.scan(), "it is not the file with that hash"
        assert not dropping.scan()
        assert (codes(news), labels(opened)) == ([], ["a"])


def test_a_changed_file_is_a_new_file(place: Place) -> None:
    shop = Shop.at(place)
    then = shop.drop("events/a.ndjson", line("a")).stat().st_mtime
    with shop.opened() as (opened, dropping, _):
        for label in "bc":
            dropping.scan()
            os.utime(shop.drop("events/a.ndjson", line(label)), (then, then))  # of the same size and time
        dropping.scan()
        assert labels(opened) == ["a", "b", "c"]


def test_clearing_the_ledger_replays_the_files(place: Place) -> None:
    shop = Shop.at(place)
    shop.drop("events/a.ndjson", line("a"))
    shop.drop("others/a.ndjson", line("a"))
    with shop.opened() as (opened, dropping, _), shop.opened() as (elsewhere, _, _):
        dropping.scan()
        dropping.scan()
        assert clear(elsewhere, "events") == 1
        dropping.scan()
        dropping.scan()
        assert (labels(opened), labels(opened, "others")) == (["a", "a"], ["a"])


def test_of_two_files_with_one_row_the_later_one_wins(place: Place) -> None:
    shop = Shop.at(place, UPSERT)
    shop.drop("stock/z.csv", b"id,n\n1,1\n", age_seconds=300)
    shop.drop("stock/b.ndjson", b'{"id": 1, "n": 2}\n', age_seconds=200)
    shop.drop("stock/a.csv.gz", gzip.compress(b"id,n\n1,3\n"), age_seconds=100)
    with shop.opened() as (opened, dropping, _):
        dropping.scan()
        assert [row["n"] for row in rows_of(opened.store(), "stock")] == [1, 2, 3], "the last of a commit counts"


def test_a_file_that_does_not_fit_beside_others_keeps_its_place(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_BODY_BYTES", 100_000)
    shop = Shop.at(place, UPSERT)
    many = b"".join(b"%d,0\n" % n for n in range(2, 5_000))
    for n in range(4):
        shop.drop(f"stock/{n}.csv.gz", gzip.compress(b"id,n\n1,%d\n" % n + many * (n in (1, 2))), age_seconds=300 - n)
    shop.drop("stock/4.ndjson", b'{"id": 1, "n": 4}\n', age_seconds=200)
    with shop.opened() as (opened, dropping, news):
        assert not dropping.scan()
        assert taken(news)["stock"][0] == 5
        assert [row["n"] for row in rows_of(opened.store(), "stock") if row["id"] == 1] == [0, 1, 2, 3, 4]


def test_a_file_that_is_being_written_waits_until_it_is_whole(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DROP_SCAN_SECONDS", 0.05)
    shop = Shop.at(place)
    shop.drop("events/a.ndjson", line("a"), age_seconds=0)
    with shop.opened() as (opened, dropping, news):
        assert dropping.scan()
        shop.drop("events/a.ndjson", line("a") + line("b"), age_seconds=0)
        time.sleep(0.06)
        assert dropping.scan(), "it grew"
        assert news == []
        time.sleep(0.06)
        assert not dropping.scan()
        assert labels(opened) == ["a", "b"]


def test_a_batch_user_need_not_wait_for_a_second_look(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DROP_SCAN_SECONDS", 0.05)
    shop = Shop.at(place)
    shop.drop("events/a.ndjson", line("a"), age_seconds=0)
    with shop.opened() as (opened, _, news):
        take_dropped(opened, news.append)
        assert (taken(news), labels(opened)) == ({"events": (1, 1, 0)}, ["a"])


def test_bad_files_are_put_away_at_once_and_block_nobody(place: Place) -> None:
    shop = Shop.at(place, UPSERT.replace('id = "stock"', 'id = "stock"\non_bad_row = "refuse"', 1))
    shop.drop("events/1-broken.ndjson.gz", gzip.compress(line("x") * 999)[:-9])
    shop.drop("events/2-bad.ndjson", b"no json\n" * 101)
    shop.drop("events/3-good.ndjson", line("a") + b"no json\n")
    shop.drop("events/4-bad.csv", b"a,a\n1,2\n")
    shop.drop("events/5-good.csv", b"label\nb\n")
    shop.drop("stock/one-bad.ndjson", b'{"id": 1}\n{"id": "x"}\n')
    shop.drop("stock/good.ndjson", b'{"id": 1}\n')
    with shop.opened() as (opened, dropping, news):
        assert not dropping.scan()
        assert taken(news) == {"events": (2, 2, 1), "stock": (1, 1, 0)}
        assert sorted(codes(news)) == ["HW-I02", "HW-I02", "HW-I04", "HW-I04"]
        assert labels(opened) == ["a", "b"]
        letters = rows_of(opened.store(), "_dead_letters")
        assert [(row["place"], row["line"], row["source"]) for row in letters] == [
            ("drop/events/3-good.ndjson", 2, b"no json")
        ]
        assert (dropping.scan(), len(news)) == (False, 6), "no message is repeated"
        assert is_clean(opened)
    away = shop.root / "drop/events/_failed"
    assert sorted(path.name for path in away.iterdir()) == [
        "1-broken.ndjson.gz",
        "1-broken.ndjson.gz.reason.json",
        "2-bad.ndjson",
        "2-bad.ndjson.reason.json",
        "4-bad.csv",
        "4-bad.csv.reason.json",
    ]
    reason = json.loads((away / "2-bad.ndjson.reason.json").read_text())
    assert (reason["code"], reason["detail"]["total"]) == ("HW-I02", 101)
    (away / "4-bad.csv").write_bytes(b"label\nc\n")
    (away / "4-bad.csv").rename(shop.root / "drop/events/4-mended.csv")
    os.utime(shop.root / "drop/events/4-mended.csv", (1, 1))
    with shop.opened() as (opened, dropping, news):
        dropping.scan()
        assert labels(opened) == ["a", "b", "c"]


def test_a_bad_file_that_cannot_be_put_away_is_told_once_and_stays(place: Place) -> None:
    shop = Shop.at(place)
    shop.drop("events/a.csv", b"a,a\n")
    shop.drop("events/_failed", b"in the way")
    with shop.opened() as (_, dropping, news):
        for _ in range(3):
            dropping.scan()
        assert codes(news) == ["HW-T05", "HW-I04"]
        assert isinstance(news[1], PutAway)
        assert [str(where) for where in news[1].places] == ["drop/events/a.csv"]


def test_what_is_wrong_with_the_folder_is_told_once(place: Place) -> None:
    shop = Shop.at(place)
    (shop.root / "drop").write_bytes(b"a file")
    with shop.opened() as (_, dropping, news):
        dropping.run(AfterThree())
        assert codes(news) == ["HW-I04"]


def test_links_and_pipes_are_told_once_and_no_row_is_read_through_them(place: Place) -> None:
    shop = Shop.at(place)
    shop.drop("events/a.ndjson", line("a"))
    secret = shop.root / "secret.csv"
    secret.write_bytes(b"label\nhidden\n")
    (shop.root / "drop/events/b.csv").symlink_to(secret)
    (shop.root / "drop/behind").symlink_to(shop.root / "drop/events")
    os.mkfifo(shop.root / "drop/events/c.csv")
    shop.drop("events/two\nerror: lines.csv", b"\0\n")
    with shop.opened() as (_, dropping, news):
        for _ in range(3):
            dropping.scan()
    assert taken(news) == {"events": (1, 1, 0)}
    told = [each for each in news if not isinstance(each, Taken)]
    assert len(told) == 4
    assert not [line for error in told for line in error.render().splitlines() if line.startswith("error: ")]
    assert [error for error in told if "two\\nerror: lines.csv" in error.message]


def test_of_much_that_will_not_be_taken_some_is_told_and_the_rest_counted(place: Place) -> None:
    shop = Shop.at(place)
    for number in range(limits.ERRORS_SHOWN + 7):
        shop.drop(f"events/{number}.doc", b"no rows")
    with shop.opened() as (_, dropping, news):
        dropping.run(AfterThree())
        assert codes(news) == ["HW-I04"] * (limits.ERRORS_SHOWN + 1)
        assert ": 7 more " in str(news[-1])


def test_files_land_also_where_nobody_hears_of_it(place: Place) -> None:
    shop = Shop.at(place)
    shop.drop("events/a.doc", b"no rows")
    shop.drop("events/b.ndjson", line("b"))
    with shop.opened() as (opened, dropping, _):
        heard: list[object] = []

        def hear(news: object) -> None:
            heard.append(news)
            raise BrokenPipeError

        dropping.on_news = hear
        dropping.run(AfterThree())
        assert len(heard) > 1
        assert labels(opened) == ["b"]


def test_the_look_does_not_read_a_big_file(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_BODY_BYTES", 100)
    shop = Shop.at(place)
    shop.drop("events/big.ndjson", line("x" * 100))
    shop.drop("events/small.ndjson", line("small"))
    looking, readers = threading.get_ident(), {}

    def hash_of(folder: DropFolder, file: Dropped) -> str:
        readers[file.name] = threading.get_ident() == looking
        if file.name == "big.ndjson":
            raise SliceGone
        return real(folder, file)

    real = DropFolder.hash_of
    monkeypatch.setattr(DropFolder, "hash_of", hash_of)
    with shop.opened() as (opened, dropping, _):
        dropping.scan()
        assert dropping.finish(), "the big one is tried again"
        assert readers == {"big.ndjson": False, "small.ndjson": True}
        assert labels(opened) == ["small"]


class AfterThree(threading.Event):
    """Ends what waits for it after three rounds."""

    rounds = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.rounds += 1
        return self.rounds > 3


def test_a_file_that_cannot_be_read_is_tried_a_few_times(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DROP_SCAN_SECONDS", 0.01)
    shop = Shop.at(place)
    path = shop.drop("events/a.ndjson", line("a"))
    shop.drop("events/b.ndjson", line("b"))
    with shop.opened() as (opened, dropping, news):
        monkeypatch.setattr("headwater.connectors.files.streams.open_below", _refuse(path))
        for _ in range(limits.DROP_TRIES - 1):
            assert dropping.scan(), "it is tried again"
            assert codes(news) == []
            time.sleep(limits.DROP_SCAN_SECONDS * 2**limits.DROP_TRIES)
        assert not dropping.scan()
        monkeypatch.undo()
        assert (codes(news), labels(opened)) == (["HW-C03"], ["b"])
    assert (shop.root / "drop/events/_failed/a.ndjson").read_bytes() == line("a")


def test_what_is_wrong_with_the_store_is_no_fault_of_a_file(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DROP_PAUSE_SECONDS", 0.0)
    shop = Shop.at(place)
    shop.drop("events/a.ndjson", line("a"))
    with shop.opened() as (opened, dropping, news):
        tables = opened.store().layout.tables
        tables.write_bytes(b"in the way")
        for _ in range(limits.DROP_TRIES + 2):
            dropping.scan()
        assert set(codes(news)) == {"HW-T05"}
        assert len(news) == 1, "told once"
        tables.unlink()
        dropping.scan()
        assert (taken(news[1:]), labels(opened)) == ({"events": (1, 1, 0)}, ["a"])


def test_a_table_that_takes_no_files_is_told_once_and_keeps_them(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DROP_PAUSE_SECONDS", 0.0)
    pulled = '[[pipeline]]\nid = "orders"\nsource = { connector = "files", config = { path = "x/*.csv" } }\n'
    shop = Shop.at(place, pulled + 'tables = ["orders"]\n')
    shop.drop("orders/a.csv", b"id\n1\n")
    shop.drop("_dead_letters/a.csv", b"id\n1\n")
    shop.drop("events/a.ndjson", line("a"))
    with shop.opened() as (_opened, dropping, news):
        for _ in range(3):
            dropping.scan()
        assert (codes(news), taken(news)) == (["HW-I03"], {"events": (1, 1, 0)})
    assert (shop.root / "drop/orders/a.csv").exists()


def test_a_schema_that_needs_a_decision_keeps_the_files_waiting(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DROP_PAUSE_SECONDS", 0.0)
    shop = Shop.at(place, UPSERT)
    shop.drop("stock/a.csv", b"id,n\n1,1\n")
    with shop.opened() as (_, dropping, _news):
        dropping.scan()
    shop.declare(UPSERT.replace('n = "long"', 'n = "bool"'))
    shop.drop("stock/b.csv", b"id,n\n2,2\n")
    with shop.opened() as (_, dropping, news):
        dropping.scan()
        dropping.scan()
        assert codes(news) == ["HW-S01"]
    shop.declare(UPSERT)
    with shop.opened() as (opened, dropping, news):
        dropping.scan()
        assert [row["id"] for row in rows_of(opened.store(), "stock")] == [1, 2]


@pytest.mark.parametrize("point", ["part.after_fsync", "commit.inside", "commit.after", "ingest.before_answer"])
def test_a_look_that_was_killed_lands_every_row_once_when_it_is_done_again(place: Place, point: str) -> None:
    shop = Shop.at(place)
    for n in range(50):
        body = line(n) if n % 2 else b"label\n%d\n" % n
        shop.drop(f"events/{n:02}.{'ndjson' if n % 2 else 'csv'}", body + (b"" if n % 10 else b"x,y\n"))
    with shop.opened() as (opened, _, _news):
        opened.store()
    assert exit_code(look_killed, shop, crash_at=f"{point}@2") == -9
    with shop.opened() as (opened, dropping, news):
        dropping.scan()
        assert sorted(labels(opened), key=int) == [str(n) for n in range(50)]
        assert len(rows_of(opened.store(), "_dead_letters")) == 5
        assert codes(news) == []
        assert is_clean(opened)


def look_killed(shop: Shop) -> None:
    """So few files a commit that it is killed between two of them."""
    limits.PUSH_HELD_BYTES = 100
    scan_once(shop)


def test_two_servers_that_look_into_one_folder_land_each_file_once(place: Place) -> None:
    shop = Shop.at(place)
    for n in range(60):
        shop.drop(f"events/{n:03}.ndjson", line(n))
    with shop.opened() as (opened, _, _news):
        opened.store()
    with pool(3) as processes:
        landed = list(processes.map(look_slowly, [shop] * 3))
    with shop.opened() as (opened, dropping, news):
        dropping.scan()
        assert news == []
        assert sorted(labels(opened), key=int) == [str(n) for n in range(60)]
        assert sum(landed) == 60
        assert is_clean(opened)


def look_slowly(shop: Shop) -> int:
    """In many small groups, so that two meet on the way."""
    limits.PUSH_HELD_BYTES = 100
    return scan_once(shop)


def _refuse(path: Path) -> Any:
    """An `open_below` that may not read one file."""

    def refusing(folder: Path, name: str) -> Any:
        if folder / name == path:
            raise PermissionError(13, "Permission denied")
        return open_below(folder, name)

    return refusing

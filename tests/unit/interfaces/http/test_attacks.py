"""What a hostile client sends as SQL (`scenarios/query/attacks.json`): over HTTP, and to a session in the process of the
local user. Both run in processes that are killed if they do not answer, so that these tests end whatever is broken."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from api_server import ApiServer
from forked import context
from headwater.app.query import reader
from headwater.app.workspace import workspace
from headwater.base.errors import HeadwaterError
from headwater.duck.sandbox import run_query
from unit.interfaces.landed import landed_project

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

ATTACKS = json.loads((Path(__file__).parents[3] / "scenarios" / "query" / "attacks.json").read_text())
ANSWER_SECONDS = 60
"""A process that has not answered by then never will."""
CANARY = "canary-of-the-environment"
STATUS = {"HW-Q01": 400, "HW-Q02": 504, "HW-Q03": 400, "rows": 200}


@dataclass
class Target:
    """A project whose files must stay as they are."""

    root: Path

    def __post_init__(self) -> None:
        landed_project(self.root)
        (self.root / "secret.txt").write_text("the secret\n")
        (self.root / "secret.csv").write_text("a\nthe secret\n")
        (store,) = (path.parent for path in self.root.rglob("meta.sqlite"))
        (store / "secret.csv").write_text("a\nthe secret\n")
        os.mkfifo(self.root / "fifo")
        os.mkfifo(self.root / "fifo.csv")
        (self.root / "fifo-directory").mkdir()
        os.mkfifo(self.root / "fifo-directory" / "schema.sql")
        os.mkfifo(self.root / "fifo-directory" / "load.sql")
        (self.live,) = self.root.rglob("*.parquet")
        self.whole = self.live.read_bytes()

    def sql(self, case: dict[str, Any]) -> str:
        if "deep" in case:
            deep = case["deep"]
            times = deep["times"]
            return str(deep["before"] + deep["open"] * times + deep["middle"] + deep["close"] * times + deep["after"])
        return str(case["sql"]).replace("<root>", str(self.root)).replace("<live>", str(self.live))

    def files(self) -> list[str]:
        """All but what SQLite keeps beside its file."""
        found = (str(path.relative_to(self.root)) for path in self.root.rglob("*"))
        return sorted(name for name in found if "meta.sqlite-" not in name)

    def check(self, case: dict[str, Any], text: str, before: list[str]) -> None:
        assert self.files() == before
        assert self.live.read_bytes() == self.whole
        assert "the secret" not in text
        assert CANARY not in text
        if "<root>" not in case.get("sql", "") and "<live>" not in case.get("sql", ""):
            assert str(self.root) not in text
            assert "/root" not in text and "/tmp" not in text


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Target:
    return Target(tmp_path_factory.mktemp("attacked") / "shop")


@pytest.fixture(scope="module")
def client(target: Target) -> Iterator[httpx.Client]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWATER_CANARY", CANARY)
        server = ApiServer(target.root)
    try:
        with httpx.Client(base_url=server.url, trust_env=False, timeout=ANSWER_SECONDS) as found:
            found.post("/v1/query", json={"sql": "select 1"})  # the views are made
            yield found
    finally:
        server.kill()


@pytest.mark.parametrize("case", ATTACKS, ids=lambda case: case["claim"])
def test_an_attack_over_http_reaches_nothing(client: httpx.Client, target: Target, case: dict[str, Any]) -> None:
    before = target.files()
    body = {"sql": target.sql(case), "timeout_seconds": case.get("seconds", 30)}
    found = client.post("/v1/query", json=body)
    expected = case["expect"]
    code = found.json().get("code", "rows")
    if expected == "ends":
        assert (found.status_code, code) in [(STATUS[code], code) for code in STATUS], found.text
    elif not case.get("sql", "any"):
        assert found.status_code == 422
    else:
        assert (code, found.status_code) == (expected, STATUS[expected]), found.text
    target.check(case, found.text, before)
    health = client.post("/v1/query", json={"sql": "select count(*) as n from orders"})
    assert health.json()["rows"] == [{"n": 2}]


class LocalUser:
    """Asks in a process of its own, as `headwater query` does."""

    def __init__(self, root: Path):
        forking = context()
        self._asked, there = forking.Pipe()
        self._process = forking.Process(target=_ask_all, args=(root, there), daemon=True)
        self._process.start()
        there.close()

    def ask(self, sql: str) -> tuple[str, str]:
        self._asked.send(sql)
        assert self._asked.poll(ANSWER_SECONDS), "no answer"
        found: tuple[str, str] = self._asked.recv()
        return found

    def kill(self) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.join()


def _ask_all(root: Path, asked: Connection) -> None:
    os.chdir(root)
    with workspace(root) as opened:
        while True:
            sql = asked.recv()
            try:
                with reader(opened, sql=sql) as session:
                    rows = list(itertools.islice(run_query(session, sql).rows(), 100))
                asked.send(("rows", str(rows)))
            except HeadwaterError as error:
                asked.send((error.code, error.message))
            except BaseException as error:
                asked.send((type(error).__name__, str(error)))


@pytest.fixture(scope="module")
def local_user(target: Target) -> Iterator[LocalUser]:
    with workspace(target.root) as opened, reader(opened):
        pass  # the views are made
    found = LocalUser(target.root)
    yield found
    found.kill()


@pytest.mark.parametrize("case", [c for c in ATTACKS if "http" not in c], ids=lambda case: case["claim"])
def test_an_attack_in_process_reaches_nothing(local_user: LocalUser, target: Target, case: dict[str, Any]) -> None:
    before = target.files()
    code, text = local_user.ask(target.sql(case))
    assert code == case["expect"], text
    if code != "rows":  # on this machine its user may see where the files are
        target.check(case, text, before)
    assert target.files() == before
    assert local_user.ask("select count(*) from orders") == ("rows", "[(2,)]")

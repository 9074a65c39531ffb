"""One key and two servers of one project on PostgreSQL, over HTTP: whoever is asked, and whoever dies."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from api_server import ApiServer
from headwater.app.workspace import workspace
from headwater.catalog.lookup import table_states
from headwater.catalog.verify import verify

BODY = b'{"label": "a", "n": 1}\n{"label": "b", "n": 2}\n'
ASKED = 100
AT_ONCE = 25
CLIENT = httpx.Client(timeout=120, trust_env=False, verify=False)


@pytest.fixture
def project(tmp_path: Path, postgres_url: str) -> Path:
    (tmp_path / "headwater.toml").write_text(f'[project]\nname = "shop"\n[context]\ncatalog = "{postgres_url}"\n')
    return tmp_path


def push(url: str, key: str, body: bytes = BODY) -> dict[str, Any]:
    answer = CLIENT.post(f"{url}/v1/ingest/events", content=body, headers={"Idempotency-Key": key})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def must_hold(project: Path, rows: int) -> None:
    """So many rows, in files that are all there, and nothing is wrong with the store once it was opened again."""
    with workspace(project) as opened:
        store = opened.store()
        with store.catalog.snapshot() as connection:
            (state,) = [state for state in table_states(connection) if state.name == "events"]
        assert sum(file.rows for file in state.files) == rows
        assert not verify(store).problems


def test_a_hundred_requests_with_one_key_to_two_servers_land_once(project: Path) -> None:
    servers = [ApiServer(project) for _ in range(2)]
    push(servers[0].url, "before")  # the table is there: its making alone would tell two pushes apart
    with ThreadPoolExecutor(AT_ONCE) as threads:
        answers = list(threads.map(lambda number: push(servers[number % 2].url, "k"), range(ASKED)))
    assert sum(not answer.pop("replayed") for answer in answers) == 1
    assert answers == [answers[0]] * ASKED
    must_hold(project, 4)
    for server in servers:
        server.kill()


@pytest.mark.parametrize(("point", "happened"), [("commit.inside", False), ("commit.after", True)])
def test_what_a_killed_server_was_asked_the_other_one_answers(project: Path, point: str, happened: bool) -> None:
    """Many senders, one key: the server dies under them in the middle of its commit, and they turn to the other."""
    dying, other = ApiServer(project, crash_at=f"{point}@2"), ApiServer(project)
    push(dying.url, "before")

    def stubborn(_number: int) -> tuple[bool, dict[str, Any]]:
        try:
            return False, push(dying.url, "k")
        except httpx.TransportError:
            return True, push(other.url, "k")

    with ThreadPoolExecutor(10) as threads:
        told = list(threads.map(stubborn, range(10)))
    assert dying.ended() == -9
    assert all(turned for turned, _ in told), "nobody was answered by the one that died"
    assert sum(not answer.pop("replayed") for _, answer in told) == (0 if happened else 1)
    assert len({tuple(answer.items()) for _, answer in told}) == 1
    must_hold(project, 4)
    other.kill()

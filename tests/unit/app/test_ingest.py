"""When views are brought up to what was pushed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.app import ingest as app_ingest
from headwater.app.ingest import Ingestor
from headwater.app.workspace import Workspace, workspace
from headwater.base import limits
from headwater.catalog.commit import Store


class ByHand(threading.Timer):
    """A timer that does its work when it is told to."""

    made: list[ByHand]

    def start(self) -> None:
        self.made.append(self)

    def join(self, timeout: float | None = None) -> None:
        """It was never started."""

    def ring(self) -> None:
        self.function(*self.args, **self.kwargs)


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> list[ByHand]:
    ByHand.made = []
    monkeypatch.setattr(app_ingest.threading, "Timer", ByHand)
    return ByHand.made


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workspace]:
    (tmp_path / "headwater.toml").write_text('[project]\nname = "shop"\n')
    with workspace(tmp_path) as opened:
        yield opened


def test_many_pushes_are_shown_by_one_refresh_and_the_next_waits_longer_the_longer_it_took(
    shop: Workspace, timers: list[ByHand], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, shown = [0.0], []

    def refresh(_store: Store, _project: object) -> None:
        shown.append(now[0])
        now[0] += 2.0

    monkeypatch.setattr(app_ingest, "refresh", refresh)
    monkeypatch.setattr(app_ingest.time, "monotonic", lambda: now[0])
    ingestor = Ingestor()
    for _ in range(3):
        ingestor.show_soon(shop)
    assert [timer.interval for timer in timers] == [limits.VIEW_REFRESH_SECONDS]
    timers[0].ring()
    ingestor.show_soon(shop)
    assert [timer.interval for timer in timers[1:]] == [limits.VIEW_REFRESH_SHARE * 2.0]
    assert shown == [0.0]


def test_after_it_is_closed_nothing_is_shown_any_more(shop: Workspace, timers: list[ByHand]) -> None:
    ingestor = Ingestor()
    ingestor.close()
    ingestor.show_soon(shop)
    assert timers == []

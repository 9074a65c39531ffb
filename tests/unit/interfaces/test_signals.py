"""What a signal to stop does."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from headwater.base import limits
from headwater.interfaces.cli.serve import until_signal

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_stops_once(number: int) -> None:
    stopped = threading.Semaphore(0)
    with until_signal(stopped.release):
        os.kill(os.getpid(), number)
        assert stopped.acquire(timeout=60)
    assert not stopped.acquire(blocking=False)


def test_the_echo_of_a_signal_is_the_same_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SIGNAL_ECHO_SECONDS", 3600.0)
    stopped = threading.Semaphore(0)
    with until_signal(stopped.release):
        for number in SIGNALS:
            os.kill(os.getpid(), number)
        assert stopped.acquire(timeout=60)
    assert not stopped.acquire(blocking=False)


def test_a_later_signal_ends_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SIGNAL_ECHO_SECONDS", 0.0)
    never = threading.Event()
    with pytest.raises(KeyboardInterrupt), until_signal(lambda: None):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        never.wait(60)


def test_the_handlers_of_before_are_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with until_signal(lambda: None):
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before

"""The bar of `headwater ingest`: on a terminal, for much; stdout is the answer and nothing else."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headwater.base import limits

HEADWATER = "from headwater.interfaces.cli.main import run; run()"


def on_a_terminal(*arguments: str | Path) -> tuple[str, str]:
    """What a command writes to stdout, which is a pipe, and to stderr, which is a terminal."""
    master, terminal = pty.openpty()
    shown: list[bytes] = []

    def read() -> None:
        try:
            while part := os.read(master, 65_536):
                shown.append(part)
        except OSError:  # the terminal is closed
            pass

    reading = threading.Thread(target=read)
    reading.start()
    words = [sys.executable, "-c", HEADWATER, *map(str, arguments)]
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=terminal, stdin=subprocess.DEVNULL, check=True)
    finally:
        os.close(terminal)
        reading.join()
        os.close(master)
    return done.stdout.decode(), b"".join(shown).decode()


@pytest.mark.parametrize("big", [False, True])
def test_much_to_push_shows_a_bar_on_a_terminal(tmp_path: Path, big: bool) -> None:
    (tmp_path / "headwater.toml").write_text('[project]\nname = "shop"\n')
    body = "x" * (limits.PROGRESS_BYTES if big else 10)
    (tmp_path / "a.ndjson").write_text(json.dumps({"body": body}))
    file = tmp_path / "a.ndjson"
    out, err = on_a_terminal("--project", tmp_path, "ingest", "events", file, file, "--json")
    assert [batch["rows_ingested"] for batch in json.loads(out)["batches"]] == [1, 1]
    assert ("/2 batches" in err) == big

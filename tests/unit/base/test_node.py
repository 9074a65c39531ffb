"""The machine's name: the same in every process, never random, and no process is taken for dead that may live."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headwater.base import node
from headwater.base.holder import is_alive, is_seen, new_holder

CHILD = """
import sys, uuid
from pathlib import Path
uuid.getnode = lambda: int(sys.argv[1])  # without a network card: another random number in each process
from headwater.base import node
if sys.argv[2]:
    node.MACHINE_ID_FILES = ()
    node.keep_node_in(Path(sys.argv[2]))
print(node.this_node())
"""


def named(number: int, file: str = "") -> str:
    environment = {key: value for key, value in os.environ.items() if key != node.VARIABLE}
    command = [sys.executable, "-c", CHILD, str(number), file]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_every_process_gives_the_machine_the_same_name() -> None:
    assert named(1) == named(2)


def test_a_machine_without_an_id_keeps_its_name_in_the_project(tmp_path: Path) -> None:
    file = tmp_path / ".headwater/node"
    with ThreadPoolExecutor(3) as pool:
        names = set(pool.map(lambda number: named(number, str(file)), range(3)))
    assert len(names) == 1
    assert [path.name for path in file.parent.iterdir()] == ["node"]
    assert named(1, str(tmp_path / "other/node")) not in names, "the mark is the file's"
    assert named(1, "/proc/cannot/be/made") == named(2, "/proc/cannot/be/made")


def test_the_name_does_not_show_the_machine_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine_id = "0123456789abcdef0123456789abcdef"
    monkeypatch.delenv(node.VARIABLE, raising=False)
    broken, whole = tmp_path / "a", tmp_path / "b"
    broken.write_text("uninitialized\n")
    whole.write_text(f"{machine_id}\n")
    monkeypatch.setattr(node, "MACHINE_ID_FILES", (tmp_path / "none", broken, whole))
    mark = node.this_node().rpartition("-")[2]
    assert re.fullmatch("[0-9a-f]{6}", mark)
    assert mark not in machine_id
    whole.write_text(f"{machine_id[::-1]}\n")
    node._machine_id.cache_clear()
    assert node.this_node().rpartition("-")[2] != mark
    monkeypatch.setenv(node.VARIABLE, "Edge 7")
    assert node.this_node() == "edge-7"
    node._machine_id.cache_clear()


HERE, HOST, NEIGHBOUR, REBOOTED = "aaaaaa.4026532001", "aaaaaa.host", "aaaaaa.4026532002", "bbbbbb.host"


@pytest.mark.parametrize(
    ("here", "scope", "given", "alive"),
    [
        (HERE, HERE, "", False),  # its process id is none of ours
        (HERE, NEIGHBOUR, "", True),  # another container of one image and one host name: it may live
        (HERE, HOST, "", True),
        (HOST, HERE, "", True),
        (HOST, REBOOTED, "", False),  # the machine has booted since
        (HERE, REBOOTED, "", True),
        (HERE, NEIGHBOUR, "edge", False),  # a container that was started again under its own name
        ("", HERE, "", False),  # a system that does not tell: as it was
        (HERE, "", "", False),  # a holder of an earlier version
    ],
)
def test_a_holder_is_dead_only_if_its_processes_can_be_seen(
    monkeypatch: pytest.MonkeyPatch, here: str, scope: str, given: str, alive: bool
) -> None:
    monkeypatch.setattr(node, "process_scope", lambda: here)
    monkeypatch.setattr("headwater.base.holder.process_scope", lambda: here)
    monkeypatch.setenv(node.VARIABLE, given)
    began = f"77@{scope}" if scope else "77"
    holder = f"{node.this_node()}/999999999/{began}/abcd"
    assert (is_alive(holder), is_seen(holder)) == (alive, False)


def test_a_living_process_is_seen() -> None:
    holder = new_holder()
    assert is_alive(holder)
    assert is_seen(holder)
    assert holder.split("/")[2].partition("@")[2] == node.process_scope()

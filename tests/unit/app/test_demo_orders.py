"""Orders that arrive in the demo: whole files, ids that are never used twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.app.demo_orders import ORDERS_PER_FILE, drop
from headwater.app.init import write_demo
from headwater.app.workspace import load
from headwater.interfaces.cli.main import main


def test_every_file_has_orders_of_its_own(tmp_path: Path) -> None:
    ids = [json.loads(line)["id"] for number in (1, 2, 3) for line in drop(tmp_path, number).read_text().splitlines()]
    assert len(set(ids)) == 3 * ORDERS_PER_FILE
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"live-00000{n}.ndjson" for n in (1, 2, 3)]


def test_the_demo_is_a_valid_project_with_all_kinds_of_parts(tmp_path: Path) -> None:
    write_demo(tmp_path / "demo")
    project = load(tmp_path / "demo")
    assert project.unsupported == ()
    sales = project.pipeline("sales").spec
    assert [source.required for source in sales.sources] == [True, True, False]
    kinds = {trigger.kind for loaded in project.pipelines for trigger in loaded.spec.triggers}
    assert kinds == {"wave", "tide"}


@pytest.mark.parametrize("arguments", [["--for", "60s"], ["--serve", "--for", "soon"]])
def test_how_long_is_asked_only_of_a_demo_that_serves(arguments: list[str], tmp_path: Path) -> None:
    assert main(["demo", str(tmp_path / "demo"), *arguments]) == 2
    assert not (tmp_path / "demo").exists()

"""Connectors are found by name, and cost nothing until one is used."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from headwater.base.errors import HeadwaterError
from headwater.connectors.registry import CONNECTORS, Abilities, connector, open_source


def test_an_unknown_connector_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(HeadwaterError) as error:
        open_source("file", {}, root=tmp_path, resolve=str, pipeline="p")
    assert error.value.code == "HW-M06"
    assert error.value.hint == "did you mean `files`?"


def test_the_connectors_of_tests_are_not_suggested() -> None:
    with pytest.raises(HeadwaterError) as error:
        connector("flakey")
    assert "flaky" not in error.value.hint


@pytest.mark.parametrize("name", sorted(CONNECTORS))
def test_every_entry_names_a_module_of_the_same_version(name: str) -> None:
    info = CONNECTORS[name]
    assert info.name == name
    assert info.version == import_module(info.module).VERSION


def test_scanning_files_imports_no_heavy_package(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text('{"a": 1}\n')
    program = """
import sys
from pathlib import Path
from headwater.connectors.protocol import TableAsk
from headwater.connectors.registry import CONNECTORS, Abilities, connector, open_source
assert not [name for name in sys.modules if name.startswith("headwater.connectors.f")]
config = {"path": "*.ndjson"}
assert CONNECTORS["files"].check_config(config) == []
source = open_source("files", config, root=Path(sys.argv[1]), resolve=str, pipeline="p")
ask = TableAsk("t", "t", "append")
assert len(source.slices(ask, None, source.bound(ask), {}).slices) == 1
heavy = ("pyarrow", "numpy", "msgspec", "headwater.coerce")
print([name for name in sys.modules if name.startswith(heavy)])
"""
    run = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False)
    assert run.stderr == ""
    assert run.stdout == "[]\n"


def test_a_connector_whose_packages_are_not_installed_says_which(tmp_path: Path) -> None:
    info = replace(CONNECTORS["flaky"], abilities=Abilities(packages=("json", "no_such_package")))
    with pytest.raises(HeadwaterError, match="needs packages that are not installed: no_such_package"):
        info.open({}, root=tmp_path, resolve=str, pipeline="p")

"""Connectors are found by name, and cost nothing until one is used."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from headwater.base.errors import HeadwaterError
from headwater.connectors.registry import CONNECTORS, Abilities


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
from headwater.connectors.registry import CONNECTORS
assert not [name for name in sys.modules if name.startswith("headwater.connectors.f")]
config = {"path": "*.ndjson"}
assert CONNECTORS["files"].check_config(config) == []
source = CONNECTORS["files"].open(config, root=Path(sys.argv[1]), resolve=str, pipeline="p")
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


class _Entry:
    """An entry point of an installed package."""

    value = "package:CONNECTOR"

    def __init__(self, found: object):
        self.found = found

    def load(self) -> object:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def _install(monkeypatch: pytest.MonkeyPatch, name: str, found: object) -> None:
    class Entries(list[_Entry]):
        names = {name}

    def entry_points(*, group: str, name: str = name) -> Entries:
        assert group == "headwater.connectors"
        return Entries([_Entry(found)] if name in Entries.names else [])

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)


def test_a_connector_of_an_installed_package_is_found_beside_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = replace(CONNECTORS["flaky"], name="theirs", kind="source")
    _install(monkeypatch, "theirs", theirs)
    assert CONNECTORS["theirs"] is theirs
    assert "theirs" in CONNECTORS
    assert [*CONNECTORS] == ["files", "postgres", "push", "theirs"]
    assert len(CONNECTORS) == 4


def test_an_installed_package_cannot_replace_a_connector_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = CONNECTORS["files"]
    _install(monkeypatch, "files", replace(ours, version="9"))
    assert CONNECTORS["files"] is ours
    assert [*CONNECTORS] == ["files", "postgres", "push"]


@pytest.mark.parametrize(
    "found", [ImportError("no module named x"), "a text", replace(CONNECTORS["flaky"], name="other")]
)
def test_a_package_that_cannot_be_loaded_is_reported_by_name(found: object, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, "theirs", found)
    with pytest.raises(HeadwaterError, match="`theirs` of an installed package") as error:
        CONNECTORS["theirs"]
    assert error.value.code == "HW-C01"
    assert "package:CONNECTOR" in error.value.hint

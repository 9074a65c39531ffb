"""A landed project, and a command line that is called in this process. No JVM."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from headwater.interfaces.cli.main import main
from unit.interfaces.landed import landed_project


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One landed project for the tests that only read it."""
    return landed_project(tmp_path_factory.mktemp("landed"))


@pytest.fixture
def project(landed: Path, tmp_path: Path) -> Path:
    """A landed project of this test alone."""
    return Path(shutil.copytree(landed, tmp_path / "shop"))


class Said:
    """What a command said and how it ended."""

    def __init__(self, code: int, out: str, err: str):
        self.code, self.out, self.err = code, out, err

    def json(self) -> Any:
        """The one object on stdout; nothing else may be there."""
        value = json.loads(self.out)
        assert value["schema_version"] == 1
        return value


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str | Path) -> Said:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Said(code, captured.out, captured.err)

    return call

"""How a case of `tests/scenarios/manifest` is run: its files are written down and loaded, its errors rendered."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headwater.base.errors import HeadwaterError
from headwater.manifest.load import load_project

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios" / "manifest"
CONNECTORS = frozenset({"files", "postgres"})


def check_config(connector: str, config: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """A connector's check as small as can be: `files` knows two keys."""
    for key in config:
        if connector == "files" and key not in ("path", "format"):
            yield key, "unknown key", "did you mean `format`?"


def all_cases() -> list[Any]:
    return [case for file in sorted(SCENARIOS.glob("*.json")) for case in json.loads(file.read_text(encoding="utf-8"))]


def run_case(case: Mapping[str, Any]) -> str:
    """What a person would read."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        (root / "pipelines").mkdir()
        for file, text in case["files"].items():
            content = text if isinstance(text, str) else "".join(f"{line}\n" for line in text)
            (root / file).write_bytes(content.encode())
        for file, text in case.get("hex", {}).items():
            (root / file).write_bytes(bytes.fromhex(text))
        try:
            load_project(root, connectors=CONNECTORS, check_config=check_config, environ=case.get("env", {}))
        except HeadwaterError as error:
            return error.render()
        return ""

"""The case files of `tests/scenarios/sql`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios" / "sql"


def sql_cases(name: str) -> list[Any]:
    found = json.loads((SCENARIOS / f"{name}.json").read_text(encoding="utf-8"))
    for case in found:
        case["sql"] = case["sql"] if isinstance(case["sql"], str) else "\n".join(case["sql"])
    return list(found)

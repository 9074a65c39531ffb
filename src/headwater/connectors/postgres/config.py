"""The config of a `postgres` source in the manifest, checked all at once.

```toml
source = { connector = "postgres", config = { url = "env:PG_URL", schema = "sales", overlap = "30m" } }
```
| key        | default  | means                                                                                      |
|------------|----------|--------------------------------------------------------------------------------------------|
| url        | required | a reference (`env:PG_URL`, `file:pg.url`), or a URL without a password (`.pgpass` may help) |
| schema     | "public" | where the tables are                                                                       |
| overlap    | "10m"    | how far behind its cursor a read begins: a duration for times and dates, or a number       |
|            | or 1000  | of ids for an id column. It must cover the longest transaction that writes the table       |
| range_rows | 1000000  | the approximate number of rows of a slice                                                  |
| fetch_rows | 50000    | the most rows of a batch                                                                   |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from headwater.base import limits
from headwater.connectors.protocol import Problem, config_error, unknown_keys

OVERLAP_SECONDS = 600
OVERLAP_IDS = 1_000
"""Sequences hand out ids before their transactions commit: smaller ids appear after larger ones."""

_KEYS = ("url", "schema", "overlap", "range_rows", "fetch_rows")
_SCHEMES = ("postgresql", "postgres")
_REFERENCE = re.compile(r"(env|file):.+")
_DURATION = re.compile(r"(\d{1,9})(s|m|h|d)")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_URL_HINT = 'for example url = "env:PG_URL", with PG_URL among the `secrets` of the pipeline'


@dataclass(frozen=True)
class PostgresConfig:
    """A checked config; `url` may still be a reference."""

    url: str
    schema: str = "public"
    overlap_seconds: int = OVERLAP_SECONDS
    overlap_ids: int = OVERLAP_IDS
    range_rows: int = limits.PG_RANGE_ROWS
    fetch_rows: int = limits.ARROW_BATCH_ROWS


def check_config(config: Mapping[str, object]) -> list[Problem]:
    """Everything that is wrong with a config, each with its key; empty if nothing is. Connects to no server."""
    problems = unknown_keys("postgres", config, _KEYS)
    problems += _check_url(config.get("url"))
    schema = config.get("schema", "public")
    if not isinstance(schema, str) or not schema or "\0" in schema:
        problems.append(("schema", "`schema` is the name of a schema", 'for example schema = "public"'))
    if _overlap(config.get("overlap", OVERLAP_IDS)) is None:
        hint = 'for example "30m" for a column of times, 5000 for a column of ids'
        problems.append(("overlap", "`overlap` is a duration or a number of ids", hint))
    for key in ("range_rows", "fetch_rows"):
        value = config.get(key, 1)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= limits.PG_MAX_ROWS:
            problems.append((key, f"`{key}` is a number of rows, at least 1", ""))
    return problems


def parse_config(config: Mapping[str, Any]) -> PostgresConfig:
    """The config as a record. Raises HW-C01 for the first problem that `check_config` finds."""
    for _, message, hint in check_config(config):
        raise config_error(message, hint)
    overlap = _overlap(config.get("overlap", OVERLAP_IDS)) or {}
    return PostgresConfig(**{key: value for key, value in config.items() if key != "overlap"} | overlap)


def url_problem(url: str) -> str | None:
    """Why a text is not a PostgreSQL URL; None if it is one. Never repeats the text: it may hold a password."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "is not a URL"
    if parts.scheme not in _SCHEMES:
        return "does not begin with `postgresql://`"
    return None


def _check_url(url: object) -> list[Problem]:
    if url is None:
        return [("url", "a postgres source needs a `url`", _URL_HINT)]
    if not isinstance(url, str):
        return [("url", "`url` is a text", _URL_HINT)]
    if _REFERENCE.fullmatch(url):
        return []
    wrong = url_problem(url)
    if wrong is not None:
        return [("url", f"`url` {wrong}", _URL_HINT)]
    parts = urlsplit(url)
    if parts.password or "password" in parse_qs(parts.query):
        return [("url", "`url` holds a password", f"keep it out of the manifest: {_URL_HINT}")]
    return []


def _overlap(value: object) -> dict[str, int] | None:
    """The overlap of a config by the name of its field: ids for a number, seconds for a duration; None for neither."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62:
        return {"overlap_ids": value}
    if not isinstance(value, str) or not re.fullmatch(rf"({_DURATION.pattern})+", value):
        return None
    return {"overlap_seconds": sum(int(number) * _UNIT_SECONDS[unit] for number, unit in _DURATION.findall(value))}

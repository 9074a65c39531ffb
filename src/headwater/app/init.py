"""init and demo: projects that can be applied without changes."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path

from headwater.base.errors import HeadwaterError
from headwater.manifest.durations import given_duration_us

_DEMO_ORDERS = 6_000
_DEMO_CUSTOMERS = 120
_CITIES = {
    "Lisbon": "Portugal",
    "Oslo": "Norway",
    "Nairobi": "Kenya",
    "Lima": "Peru",
    "Kyoto": "Japan",
    "Toronto": "Canada",
    "Berlin": "Germany",
    "Hanoi": "Vietnam",
}
_GOODS = ("kettle", "lamp", "notebook", "rope", "teapot", "umbrella", "whistle")

DEMO_QUESTION = "SELECT city, country, orders, revenue, best_day FROM report ORDER BY revenue DESC"
DEMO_PIPELINE = "sales"
"""The pipeline that `headwater demo` explains."""


def init(directory: Path) -> list[Path]:
    """Write a project that can be applied without changes. Overwrites no file."""
    return _write(directory, dict(_template("init", name=_legal_name(directory))))


def write_demo(directory: Path) -> list[Path]:
    """Write the demo project: the same rows every time."""
    texts = dict(_template("demo"))
    texts["data/customers.csv"] = _customers()
    texts["data/cities.csv"] = "city,country\n" + "".join(f"{city},{country}\n" for city, country in _CITIES.items())
    texts |= {f"data/orders/{month}.ndjson": text for month, text in _orders().items()}
    return _write(directory, texts)


def is_demo(directory: Path) -> bool:
    """True if the demo was written here before: running it again continues it."""
    manifest = directory / "headwater.toml"
    wanted = dict(_template("demo"))["headwater.toml"]
    return manifest.is_file() and manifest.read_text() == wanted


def duration_seconds(text: str) -> float:
    """A duration as a user writes it. Raises HW-U01 if it is not one."""
    return given_duration_us(text) / 1e6


def _template(kind: str, *, name: str = "") -> Iterator[tuple[str, str]]:
    root = files("headwater.app") / "templates" / kind
    shared = files("headwater.app") / "templates" / "init" / "gitignore"
    yield ".gitignore", shared.read_text()
    manifest = (root / "headwater.toml").read_text()
    yield "headwater.toml", manifest.replace("{name}", name)
    data = root / "data" / "orders"
    if data.is_dir():
        for file in data.iterdir():
            yield f"data/orders/{file.name}", file.read_text()


def _write(directory: Path, texts: Mapping[str, str]) -> list[Path]:
    in_the_way = [name for name in texts if (directory / name).exists() and name != ".gitignore"]
    if in_the_way:
        raise HeadwaterError(
            "HW-M12",
            f"`{directory / in_the_way[0]}` is already there; nothing was written",
            hint="choose another directory: `headwater init DIR`",
        )
    written = []
    for name, text in texts.items():
        path = directory / name
        if path.exists():
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        except OSError as error:
            raise HeadwaterError("HW-M12", f"cannot write `{path}`: {error.strerror or error}") from error
        written.append(path)
    return written


def _legal_name(directory: Path) -> str:
    name = re.sub(r"[^a-z0-9_-]+", "-", directory.resolve().name.lower()).strip("-")
    return name if re.match(r"[a-z_]", name) else f"project-{name}".rstrip("-")


def _customers() -> str:
    chance = random.Random(7)
    lines = ["id,name,city,since"]
    for number in range(1, _DEMO_CUSTOMERS + 1):
        since = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=chance.randrange(700))
        lines.append(f"{number},customer {number},{chance.choice(tuple(_CITIES))},{since:%Y-%m-%d}")
    return "\n".join(lines) + "\n"


def _orders() -> dict[str, str]:
    chance = random.Random(11)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    months: dict[str, list[str]] = {}
    for number in range(1, _DEMO_ORDERS + 1):
        moment += timedelta(seconds=chance.expovariate(1 / 3900))
        months.setdefault(moment.strftime("%Y-%m"), []).append(json.dumps(an_order(number, moment, chance)))
    return {month: "\n".join(lines) + "\n" for month, lines in months.items()}


def an_order(number: int, moment: datetime, chance: random.Random) -> dict[str, object]:
    """An order of the demo shop at that moment."""
    return {
        "id": number,
        "customer_id": chance.randint(1, _DEMO_CUSTOMERS),
        "ordered_at": moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "amount": f"{chance.lognormvariate(3.2, 0.8):.2f}",
        "channel": chance.choice(("web", "shop", "phone")),
        "items": [{"good": chance.choice(_GOODS), "count": chance.randint(1, 3)}],
    }

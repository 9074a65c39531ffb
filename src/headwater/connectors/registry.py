"""The connectors by name. Importing this module imports none of them: most commands need one, or only its checks.

A connector is a module with `VERSION`, `check_config(config)` and `open_source(config, *, root, resolve, pipeline)`.
Ours are registered below; an installed package registers its own with an entry point of the group
`headwater.connectors` that names a `ConnectorInfo`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, cast

from headwater.base.errors import HeadwaterError
from headwater.connectors.protocol import Problem, Source

ENTRY_POINTS = "headwater.connectors"


@dataclass(frozen=True)
class Abilities:
    """What a connector can do. Checks and landing ask for abilities, never for a connector's name.

    `bad_rows`: what happens to bad rows unless the manifest says otherwise; None if it cannot keep them.
    `keeps_bad_items`: an item that cannot be read can be left out and kept as a dead letter.
    `one_table`: the source has no tables of its own; a pipeline of it fills one.
    `knows_keys`: the source may know the primary key of a table.
    `brings_text`: values come as text, so a column's `format`, `timezone` and `decimal` apply.
    `excludes_columns`: columns can be left out of a read.
    `packages`: modules that must be installed.
    """

    bad_rows: Literal["refuse", "dead_letter"] | None = None
    keeps_bad_items: bool = False
    one_table: bool = False
    knows_keys: bool = True
    brings_text: bool = False
    excludes_columns: bool = False
    packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class ConnectorInfo:
    """A connector that can be named in a manifest. `module` opens it; `checks` is the module that checks its config, if
    that is another, lighter one. `kind` is `test` for connectors that only tests use."""

    name: str
    version: str
    module: str
    checks: str = ""
    kind: Literal["source", "test"] = "source"
    abilities: Abilities = field(default_factory=Abilities)

    def check_config(self, config: Mapping[str, object]) -> list[Problem]:
        """Everything that is wrong with a config; reads no source."""
        check = import_module(self.checks or self.module).check_config
        return cast(list[Problem], check(config))

    def open(self, config: Mapping[str, object], *, root: Path, resolve: Callable[[str], str], pipeline: str) -> Source:
        """The configured source, for one run. Raises HW-C01 for a config that `check_config` refuses, and for packages
        that are not installed."""
        if missing := [name for name in self.abilities.packages if find_spec(name) is None]:
            message = f"the `{self.name}` connector needs packages that are not installed: {', '.join(missing)}"
            raise HeadwaterError("HW-C01", message, hint=f"pip install {' '.join(missing)}")
        opened = import_module(self.module).open_source(config, root=root, resolve=resolve, pipeline=pipeline)
        return cast(Source, opened)


_OURS: dict[str, ConnectorInfo] = {
    "files": ConnectorInfo(
        "files",
        "1",
        "headwater.connectors.files.source",
        checks="headwater.connectors.files.config",
        abilities=Abilities(
            bad_rows="dead_letter",
            keeps_bad_items=True,
            one_table=True,
            knows_keys=False,
            brings_text=True,
            excludes_columns=True,
        ),
    ),
    "postgres": ConnectorInfo(
        "postgres",
        "1",
        "headwater.connectors.postgres.source",
        checks="headwater.connectors.postgres.config",
        abilities=Abilities(packages=("psycopg",)),
    ),
    "push": ConnectorInfo(
        "push",
        "1",
        "headwater.connectors.push",
        abilities=Abilities(bad_rows="refuse", knows_keys=False, brings_text=True),
    ),
}


class _Connectors(Mapping[str, ConnectorInfo]):
    """Ours first, then those of installed packages. Packages are searched only for a name that is not ours, or to list
    all names."""

    def __getitem__(self, name: str) -> ConnectorInfo:
        return _OURS[name] if name in _OURS else _installed(name)

    def __iter__(self) -> Iterator[str]:
        from importlib.metadata import entry_points

        return iter(dict.fromkeys([*_OURS, *entry_points(group=ENTRY_POINTS).names]))

    def __len__(self) -> int:
        return len(list(iter(self)))


def _installed(name: str) -> ConnectorInfo:
    """The connector that an installed package registers under that name; of several packages, the first on Python's
    path. Raises KeyError if there is none, HW-C01 for one that cannot be loaded."""
    from importlib.metadata import entry_points

    for entry in entry_points(group=ENTRY_POINTS, name=name):
        try:
            found = entry.load()
        except Exception as error:  # foreign code may raise anything: it is reported as the package's error
            message = (
                f"the connector `{name}` of an installed package cannot be loaded: {type(error).__name__}: {error}"
            )
            raise HeadwaterError("HW-C01", message, hint=f"check the entry point `{entry.value}`") from error
        if not isinstance(found, ConnectorInfo) or found.name != name:
            message = f"the connector `{name}` of an installed package is not registered as one"
            hint = f"`{entry.value}` must be a ConnectorInfo with the name `{name}`"
            raise HeadwaterError("HW-C01", message, hint=hint)
        return found
    raise KeyError(name)


CONNECTORS: Mapping[str, ConnectorInfo] = _Connectors()


def abilities_of(name: str | None) -> Abilities:
    """The abilities of a connector; the defaults for an unknown name."""
    info = CONNECTORS.get(name) if name is not None else None
    return info.abilities if info is not None else Abilities()

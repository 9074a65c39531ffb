"""The connectors by name. Importing this module imports none of them: most commands need one, or only its checks.

A connector is a module with `VERSION`, `check_config(config)` and `open_source(config, *, root, resolve, pipeline)`;
an entry below makes it known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal, cast

from headwater.base.errors import HeadwaterError, nearest
from headwater.connectors.protocol import Problem, Source


@dataclass(frozen=True)
class ConnectorInfo:
    """A connector that can be named in a manifest. `module` opens it; `checks` is the module that checks its config
    where that is another, lighter one. `kind` is `test` for those that only tests are meant to use."""

    name: str
    version: str
    module: str
    checks: str = ""
    kind: Literal["source", "test"] = "source"
    one_table: bool = False
    """The source has no tables of its own: a pipeline of it fills one."""

    def check_config(self, config: Mapping[str, object]) -> list[Problem]:
        """Everything that is wrong with a config; reads no source."""
        check = import_module(self.checks or self.module).check_config
        return cast(list[Problem], check(config))

    def open(self, config: Mapping[str, object], *, root: Path, resolve: Callable[[str], str], pipeline: str) -> Source:
        """The configured source, for one run. Raises HW-C01 for a config that `check_config` refuses."""
        opened = import_module(self.module).open_source(config, root=root, resolve=resolve, pipeline=pipeline)
        return cast(Source, opened)


CONNECTORS: dict[str, ConnectorInfo] = {
    info.name: info
    for info in (
        ConnectorInfo(
            "files",
            "1",
            "headwater.connectors.files.source",
            checks="headwater.connectors.files.config",
            one_table=True,
        ),
        ConnectorInfo(
            "postgres", "1", "headwater.connectors.postgres.source", checks="headwater.connectors.postgres.config"
        ),
        ConnectorInfo("push", "1", "headwater.connectors.push"),
        ConnectorInfo("flaky", "1", "headwater.connectors.flaky", kind="test"),
    )
}


def connector(name: str) -> ConnectorInfo:
    """The connector of that name. Raises HW-M06 with the nearest one otherwise."""
    found = CONNECTORS.get(name)
    if found is None:
        known = [info.name for info in CONNECTORS.values() if info.kind == "source"]
        meant = nearest(name, known)
        hint = f"did you mean `{meant}`?" if meant else "known connectors: " + ", ".join(known)
        raise HeadwaterError("HW-M06", f"there is no connector `{name}`", hint=hint)
    return found


def open_source(
    name: str, config: Mapping[str, object], *, root: Path, resolve: Callable[[str], str], pipeline: str
) -> Source:
    """A source by its connector's name. `root` is the project, `resolve` turns a secret reference (`env:NAME`) into
    its value, `pipeline` is the pipeline that asks."""
    return connector(name).open(config, root=root, resolve=resolve, pipeline=pipeline)

"""A project and its store, opened for one command."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from headwater.base.errors import HeadwaterError, raise_all
from headwater.base.node import keep_node_in
from headwater.connectors.registry import CONNECTORS
from headwater.manifest.checks import LoadedPipeline
from headwater.manifest.load import Project, load_project
from headwater.manifest.references import resolve_reference

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from headwater.catalog.commit import Store
    from headwater.connectors.protocol import Source
    from headwater.spark.write_frame import SparkSession

T = TypeVar("T")
NODE_FILE = ".headwater/node"


@dataclass
class Workspace:
    """One project. The store is opened when it is first needed, and closed with the workspace."""

    project: Project
    _store: Store | None = field(default=None, repr=False)
    _writable: bool = field(default=False, repr=False)

    @property
    def catalog_url(self) -> str:
        return resolve_reference(self.project.spec.context.catalog, None, os.environ, self.project.root)

    def store(self) -> Store:
        """The store for writing: made if it does not exist. Log records that a crash left out are written first."""
        if self._store is None or not self._writable:
            from headwater.catalog.commit import open_store

            self.close()
            root, name = self.project.store_root, self.project.name
            self._store, self._writable = open_store(root, project=name, catalog_url=self.catalog_url), True
        return self._store

    def existing_store(self) -> Store | None:
        """The store if anything was ever landed; reading makes none."""
        if self._store is None:
            from headwater.catalog.commit import open_existing

            root, name = self.project.store_root, self.project.name
            self._store = open_existing(root, project=name, catalog_url=self.catalog_url)
        return self._store

    def read(self, find: Callable[[Connection], T]) -> T | None:
        """What `find` finds in one snapshot of the catalog; None if nothing was ever landed."""
        store = self.existing_store()
        if store is None:
            return None
        with store.catalog.snapshot() as connection:
            return find(connection)

    def landed_store(self, *, writable: bool = False) -> Store:
        """The store, for commands that need one."""
        store = self.existing_store()
        if store is None:
            raise nothing_landed()
        return self.store() if writable else store

    def chosen(self, pipelines: Sequence[str]) -> list[LoadedPipeline]:
        """The named pipelines, or all. Parts of the manifest that have no effect yet are refused."""
        chosen = [self.project.pipeline(name) for name in pipelines] if pipelines else list(self.project.pipelines)
        self.project.refuse_unsupported([loaded.spec.id for loaded in chosen])
        return chosen

    def source(self, loaded: LoadedPipeline) -> Source:
        """A pipeline's open source. The connector resolves references in its config when it needs them."""
        spec = loaded.spec
        assert spec.source is not None
        root = self.project.root
        return CONNECTORS[spec.source.connector].open(
            spec.source.config,
            root=root,
            resolve=lambda text: resolve_reference(text, spec.secrets, os.environ, root),
            pipeline=spec.id,
        )

    def spark(self) -> SparkSession:
        from headwater.spark.session import SparkSettings, spark_session

        section = self.project.spec.spark
        root = self.project.root
        conf = {key: resolve_reference(value, None, os.environ, root) for key, value in section.conf.items()}
        return spark_session(
            SparkSettings(
                master=section.master,
                conf=conf,
                packages=tuple(section.packages),
                python=section.python,
                driver_memory=section.driver_memory,
                app_name=f"headwater {self.project.name}",
            )
        )

    def close(self) -> None:
        """Close the store. A store that was opened for writing is marked as having a complete log, so that the next
        command need not check it, and writes nothing if it has nothing else to do."""
        if self._store is None:
            return
        if self._writable:
            from headwater.catalog.log import heal_log

            with suppress(HeadwaterError):  # a lost catalog was reported already, or will be
                heal_log(self._store.catalog, self._store.layout)
        self._store.close()
        self._store, self._writable = None, False


@contextmanager
def workspace(start: Path) -> Iterator[Workspace]:
    """The project that `start` is in. Raises every error of its manifest."""
    opened = Workspace(load(start))
    try:
        yield opened
    finally:
        opened.close()


def load(start: Path, overlay: Mapping[str, str | None] | None = None) -> Project:
    """The checked manifest alone. `overlay` holds texts that replace files, to check an edit."""
    project = load_project(
        start,
        overlay=overlay,
        connectors=CONNECTORS,
        check_config=lambda connector, config: CONNECTORS[connector].check_config(config),
    )
    raise_all([error for loaded in project.pipelines if (error := _too_many_tables(loaded)) is not None])
    keep_node_in(project.root / NODE_FILE)
    return project


def check_project(start: Path) -> Project:
    """The manifest of the project around `start`, and the SQL and Python of its ripples. Raises all errors."""
    project = load(start)
    if any(loaded.spec.ripples for loaded in project.pipelines):
        from headwater.base.clock import now_us
        from headwater.runtime.compile import compile_pipelines

        compile_pipelines(project, now_us=now_us())
    return project


def nothing_landed() -> HeadwaterError:
    return HeadwaterError("HW-T07", "nothing has landed yet", hint="run `headwater apply` first")


def actor() -> str:
    """The user of this command: `HEADWATER_ACTOR`, else the operating system's user."""
    given = os.environ.get("HEADWATER_ACTOR")
    if given:
        return given
    try:
        return f"operator:{getpass.getuser()}"
    except (KeyError, OSError):
        return f"operator:{os.getuid()}"


def _too_many_tables(loaded: LoadedPipeline) -> HeadwaterError | None:
    spec = loaded.spec
    if spec.source is None or not spec.abilities.one_table or len(spec.tables) <= 1:
        return None
    return HeadwaterError(
        "HW-C01",
        f"pipeline `{spec.id}` has {len(spec.tables)} tables, and the `{spec.source.connector}` connector fills one",
        hint="write a pipeline for each table",
        places=(loaded.position,),
    )

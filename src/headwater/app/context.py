"""context verify, rebuild-catalog, gc."""

from __future__ import annotations

from collections.abc import Callable

from headwater.app.refresh_views import refresh
from headwater.app.workspace import Workspace, actor
from headwater.catalog import gc as store_gc
from headwater.catalog.rebuild import Rebuilt, rebuild_catalog
from headwater.catalog.verify import Verification
from headwater.catalog.verify import verify as verify_store


def verify(
    workspace: Workspace, *, repair: bool = False, progress: Callable[[int], None] = lambda _bytes: None
) -> Verification:
    return verify_store(workspace.landed_store(), repair=repair, progress=progress)


def rebuild(workspace: Workspace) -> Rebuilt:
    """An equal catalog from the log; the old one is kept beside it."""
    project = workspace.project
    rebuilt = rebuild_catalog(project.store_root, project=project.name, catalog_url=workspace.catalog_url)
    refresh(workspace.store(), workspace.project)
    return rebuilt


def gc(workspace: Workspace, *, retention_seconds: float, dry_run: bool) -> store_gc.Collected:
    store = workspace.landed_store(writable=True)
    if not dry_run:
        refresh(store, workspace.project)  # views of before a merge name files that may go now
    return store_gc.collect(store, actor=actor(), retention_seconds=retention_seconds, dry_run=dry_run)

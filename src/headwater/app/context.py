"""context verify, rebuild-catalog, gc."""

from __future__ import annotations

from headwater.app.refresh_views import refresh
from headwater.app.workspace import Workspace, actor
from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.catalog import gc as store_gc
from headwater.catalog.rebuild import Rebuilt, rebuild_catalog
from headwater.catalog.verify import Verification
from headwater.catalog.verify import verify as verify_store
from headwater.manifest.durations import duration_us


def verify(workspace: Workspace, *, repair: bool = False) -> Verification:
    return verify_store(workspace.landed_store(), repair=repair)


def rebuild(workspace: Workspace) -> Rebuilt:
    """Make an equal catalog from the log; the old one is kept beside it."""
    project = workspace.project
    rebuilt = rebuild_catalog(project.store_root, project=project.name, catalog_url=workspace.catalog_url)
    refresh(workspace.store(), workspace.project)
    return rebuilt


def gc(workspace: Workspace, *, retention: str | None = None, dry_run: bool) -> store_gc.Collected:
    """Delete files older than `retention`, a duration as a user writes it. Raises HW-U01 if it is not one."""
    seconds = _seconds(retention) if retention is not None else float(limits.RETENTION_SECONDS)
    store = workspace.landed_store(writable=True)
    if not dry_run:
        refresh(store, workspace.project)  # views from before a merge name files that may be deleted now
    return store_gc.collect(store, actor=actor(), retention_seconds=seconds, dry_run=dry_run)


def _seconds(text: str) -> float:
    try:
        return 0.0 if text in ("0", "0s") else duration_us(text) / 1e6
    except ValueError as error:
        raise HeadwaterError("HW-U01", f"`{text}` is not a duration", hint="write it as `7d`, `12h` or `0s`") from error

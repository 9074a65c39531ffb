"""context verify, rebuild-catalog, gc."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.base.errors import Exit
from headwater.interfaces.cli import operations
from headwater.interfaces.cli.output import JsonOption, answered, count_text, on_project, say, show, size_text

app = typer.Typer(help="The context store itself.", no_args_is_help=True)


@app.command()
def verify(
    context: typer.Context,
    json_: JsonOption = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Write missing and damaged log records again, from the catalog.")
    ] = False,
) -> int:
    """Check that every committed file is there, byte for byte, and that the log is whole."""
    found = on_project(context, operations.context.verify, repair=repair)
    if not answered(json_, {"ok": not found.problems, "verification": found}):
        for problem in found.repaired:
            show(f"repaired: {problem.path} ({problem.kind.replace('_', ' ')}), written again from the catalog")
        for problem in found.problems:
            show(f"{problem.kind.replace('_', ' ')}: {problem.path}")
        for path in found.extra:
            show(f"extra: {path}")
        files, size = count_text(found.files_checked, "file"), size_text(found.bytes_checked)
        say(f"{files} ({size}) and {count_text(found.log_records_checked, 'log record')} checked")
        say("the store is whole" if not found.problems else count_text(len(found.problems), "problem"))
    return Exit.FAILED if found.problems else Exit.DONE


@app.command("rebuild-catalog")
def rebuild_catalog(context: typer.Context, json_: JsonOption = False) -> None:
    """Rebuild the catalog from the log."""
    rebuilt = on_project(context, operations.context.rebuild)
    if answered(json_, {"rebuilt": rebuilt}):
        return
    show(f"rebuilt from {count_text(rebuilt.commits, 'commit')}")
    if rebuilt.kept_as is not None:
        say(f"the old catalog is kept as {rebuilt.kept_as}")


@app.command()
def gc(
    context: typer.Context,
    json_: JsonOption = False,
    retention: Annotated[
        str | None, typer.Option("--retention", metavar="DURATION", help="Keep what is younger (default: 7d).")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
) -> None:
    """Delete retired files and the leftovers of losing attempts, after the retention time."""
    collected = on_project(context, operations.context.gc, retention=retention, dry_run=dry_run)
    if answered(json_, {"dry_run": dry_run, "collected": collected}):
        return
    verb = "would delete" if dry_run else "deleted"
    retired, orphans = (
        count_text(collected.retired_files, "retired file"),
        count_text(collected.orphan_files, "leftover"),
    )
    show(f"{verb} {retired} and {orphans}, {size_text(collected.bytes)}")

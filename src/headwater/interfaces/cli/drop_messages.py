"""What the command line says of the drop folder."""

from __future__ import annotations

from typing import assert_never

from headwater.app.drop_folder import News, PutAway, Taken
from headwater.base.errors import HeadwaterError
from headwater.interfaces.cli.output import bad_rows_text, count_text, say, show_error


def show_dropped(news: News, *, quiet: bool = False) -> bool:
    """False for a file that was put away. `quiet` says only what goes wrong."""
    match news:
        case Taken():
            if not quiet:
                kept = f"; {bad_rows_text(news.table, news.rows_refused)}" if news.rows_refused else ""
                files, rows = count_text(news.files, "file"), count_text(news.rows, "row")
                say(f"drop: {files}, {rows} into {news.table}{kept}")
        case PutAway(error=error) | (HeadwaterError() as error):
            show_error(error, as_json=False)
        case _:
            assert_never(news)
    return not isinstance(news, PutAway)

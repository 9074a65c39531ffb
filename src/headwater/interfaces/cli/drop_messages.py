"""Messages of the command line about the drop folder."""

from __future__ import annotations

from headwater.app.drop_folder import News, PutAway, Taken
from headwater.interfaces.cli.output import bad_rows_text, count_text, say, show_error


def show_dropped(news: News, *, quiet: bool = False) -> bool:
    """False for a file that was moved to `_failed`. `quiet` shows only errors."""
    if not isinstance(news, Taken):
        show_error(news.error if isinstance(news, PutAway) else news, as_json=False)
    elif not quiet:
        kept = f"; {bad_rows_text(news.table, news.rows_refused)}" if news.rows_refused else ""
        say(f"drop: {count_text(news.files, 'file')}, {count_text(news.rows, 'row')} into {news.table}{kept}")
    return not isinstance(news, PutAway)

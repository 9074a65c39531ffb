"""Times written by Python's own `strftime` are read back by the same format, whole columns of them at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.base.text_form import TextForm
from headwater.base.types import TIMESTAMP
from headwater.coerce.text_columns import coerce_strings

DATES = ["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%Y%m%d", "%d %B %Y", "%a, %d %b %Y", "%Y-%j", "%A %e %B %Y"]
TIMES = [" %H:%M:%S.%f", "T%H%M%S", " %I:%M:%S %p", "", " at %H h %M"]
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

moments = st.datetimes(datetime(1700, 1, 1), datetime(2250, 1, 1))


@settings(max_examples=60, deadline=None)
@given(st.lists(moments, min_size=1, max_size=8), st.sampled_from(DATES), st.sampled_from(TIMES))
def test_a_column_is_read_as_python_reads_each_text(found: list[datetime], date: str, time: str) -> None:
    format_ = date + time
    texts = [moment.strftime(format_) for moment in found]
    array, errors = coerce_strings(pa.array(texts), TIMESTAMP, TextForm(format_))
    assert errors == ()
    # Python knows no `%e`, and reads `%d` of it.
    expected = [datetime.strptime(text, format_.replace("%e", "%d")).replace(tzinfo=UTC) for text in texts]
    assert array.view("int64").to_pylist() == [(each - EPOCH) // timedelta(microseconds=1) * 1000 for each in expected]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.datetimes(datetime(1950, 1, 1), datetime(2100, 1, 1)), min_size=1, max_size=8), st.sampled_from(ZONES)
)
def test_a_local_time_is_the_earlier_instant_that_shows_it_or_refused(found: list[datetime], zone: str) -> None:
    texts = [moment.strftime("%Y-%m-%d %H:%M:%S.%f") for moment in found]
    array, errors = coerce_strings(pa.array(texts), TIMESTAMP, TextForm("%Y-%m-%d %H:%M:%S.%f", zone))
    refused = {error.line for error in errors}
    for row, (moment, value) in enumerate(zip(found, array.view("int64").to_pylist())):
        instant = moment.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
        is_shown = instant.astimezone(ZoneInfo(zone)).replace(tzinfo=None) == moment
        assert (row in refused) == (not is_shown)
        assert value == ((instant - EPOCH) // timedelta(microseconds=1) * 1000 if is_shown else None)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=30), max_size=5))
def test_any_text_is_read_or_refused(texts: list[str]) -> None:
    array, errors = coerce_strings(pa.array(texts, pa.string()), TIMESTAMP, TextForm("%a %e %b %Y %I:%M %p %z"))
    assert array.null_count == len(texts)
    assert len(errors) == sum(text != "" for text in texts)

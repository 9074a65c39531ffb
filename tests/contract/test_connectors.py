"""What every connector promises by the slice protocol."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from by_hand import Table, as_stored, open_source
from contract.connector_cases import CASES, Case
from headwater.base.errors import HeadwaterError
from headwater.base.table_schema import TableSchema
from headwater.connectors.protocol import ArrowRead, Source, UnknownColumns
from headwater.connectors.registry import CONNECTORS


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    made: Case = CASES[request.param](request, tmp_path)
    return made


def opened(case: Case) -> Source:
    return open_source(
        case.connector, case.config, root=case.root, resolve=lambda name: case.secrets[name], pipeline="things"
    )


def ids(table: Table) -> list[int]:
    return sorted(row["id"] for row in table.rows)


def test_source_names_its_connector_and_version(case: Case) -> None:
    source = opened(case)
    assert (source.connector, source.version) == (case.connector, CONNECTORS[case.connector].version)


def test_config_is_found_good_and_an_unknown_key_is_refused_by_name(case: Case) -> None:
    info = CONNECTORS[case.connector]
    assert info.check_config(case.config) == []
    ((key, message, _),) = info.check_config({**case.config, "no_such_key": 1})
    assert key == "no_such_key"
    assert "no_such_key" in message
    with pytest.raises(HeadwaterError) as error:
        info.open({**case.config, "no_such_key": 1}, root=case.root, resolve=str, pipeline="things")
    assert error.value.code == "HW-C01"


def test_discover_offers_tables(case: Case) -> None:
    assert opened(case).discover()


def test_identity_is_the_same_each_time_it_is_opened(case: Case) -> None:
    assert opened(case).identity(case.ask) == opened(case).identity(case.ask)


def test_bounds_slices_and_partitions_are_plain_json(case: Case) -> None:
    source = opened(case)
    bound = source.bound(case.ask)
    assert json.loads(json.dumps(bound)) == bound
    plan = source.slices(case.ask, None, bound, {})
    assert plan.slices
    for slice_ in plan.slices:
        assert as_stored(slice_) == slice_
        read = source.read(case.ask, slice_)
        if isinstance(read, ArrowRead):
            assert json.loads(json.dumps(read.partitions)) == list(read.partitions)


def test_read_functions_can_be_sent_to_another_process(case: Case) -> None:
    source = opened(case)
    for slice_ in source.slices(case.ask, None, source.bound(case.ask), {}).slices:
        read = source.read(case.ask, slice_)
        assert isinstance(read, ArrowRead)
        pickle.loads(pickle.dumps((read.read, read.observe)))


def test_first_run_lands_every_row_once(case: Case) -> None:
    table = Table(case.ask)
    table.land(opened(case))
    assert ids(table) == sorted(set(ids(table)))
    assert len(table.rows) == case.rows


def test_second_run_has_nothing_to_do(case: Case) -> None:
    table = Table(case.ask)
    table.land(opened(case))
    assert table.plan(opened(case)).slices == ()


def test_a_grown_source_lands_the_new_rows_only(case: Case) -> None:
    table = Table(case.ask)
    table.land(opened(case))
    before = ids(table)
    case.grow()
    table.land(opened(case))
    assert len(table.rows) == case.rows + case.grown_rows
    assert ids(table) == sorted(set(ids(table)))
    assert set(before) < set(ids(table))


def test_a_slice_reads_the_same_rows_again_in_another_process(case: Case) -> None:
    planner = opened(case)
    slices = planner.slices(case.ask, None, planner.bound(case.ask), {}).slices
    first, again = Table(case.ask), Table(case.ask)
    for slice_ in slices:
        rows, items = first.read(planner, slice_)
        rows_again, items_again = again.read(opened(case), as_stored(slice_))
        assert rows == rows_again
        assert items.keys() == items_again.keys()


def test_a_schema_without_the_columns_makes_the_read_name_them(case: Case) -> None:
    source = opened(case)
    slice_ = source.slices(case.ask, None, source.bound(case.ask), {}).slices[0]
    read = source.read(case.ask, slice_)
    assert isinstance(read, ArrowRead)
    with pytest.raises(UnknownColumns) as unknown:
        for partition in read.partitions:
            list(read.read(partition, TableSchema()))
    assert "id" in unknown.value.observed.columns


def test_closing_twice_is_no_error(case: Case) -> None:
    source = opened(case)
    source.close()
    source.close()

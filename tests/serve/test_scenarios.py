"""Served projects, end to end: what arrives, what is asked for, what runs, what lands."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from postgres_server import PostgresServer
from serve.conftest import MakeProject
from serve.scenario import play, scenarios
from serve.serving import Project, Warm

SCENARIOS = dict(scenarios())
ON_POSTGRES = [name for name, scenario in SCENARIOS.items() if "postgres" in scenario.get("catalogs", ())]


def played(project: Project, scenario: Any, server: PostgresServer | None) -> None:
    later = datetime.now(UTC) + timedelta(hours=12)
    project.values["in_twelve_hours"] = f"{later:%H:%M}"
    source = None
    if scenario.get("source"):
        assert server is not None
        source = server.create_database()
        project.environment["SOURCE_URL"] = source
    try:
        play(project, scenario)
    finally:
        project.close()
        if source is not None and server is not None:
            server.give_back(source)


KNOWN = [
    pytest.param(name, marks=pytest.mark.xfail(reason=scenario["known"], strict=True)) if "known" in scenario else name
    for name, scenario in SCENARIOS.items()
]


@pytest.mark.parametrize("name", KNOWN)
def test_on_sqlite(name: str, project: Project, request: pytest.FixtureRequest) -> None:
    scenario = SCENARIOS[name]
    server = request.getfixturevalue("postgres_server") if scenario.get("source") else None
    played(project, scenario, server)


@pytest.mark.parametrize("name", ON_POSTGRES)
def test_on_postgresql(
    name: str, make_project: MakeProject, warm: Warm, postgres_server: PostgresServer, postgres_url: str
) -> None:
    played(make_project(warm, catalog=postgres_url), SCENARIOS[name], postgres_server)


def test_at_least_three_scenarios_are_played_on_both_catalogs() -> None:
    assert len(ON_POSTGRES) >= 3

"""Projects that are served, and closed whatever happens. All of them need Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("serve.serving", "serve.scenario")

from serve.serving import Cold, Project, Starter, Warm  # noqa: E402

HERE = Path(__file__).parent
MakeProject = Callable[..., Project]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.spark)


@pytest.fixture
def make_project(tmp_path: Path) -> Iterator[MakeProject]:
    made: list[Project] = []

    def make(starter: Starter, name: str = "project", *, catalog: str = "sqlite") -> Project:
        made.append(Project(tmp_path / name, starter, catalog))
        return made[-1]

    yield make
    for project in made:
        project.close()


@pytest.fixture
def project(make_project: MakeProject, warm: Warm) -> Project:
    """One whose processes are forks."""
    return make_project(warm)


@pytest.fixture
def cold_project(make_project: MakeProject) -> Project:
    """One whose processes are real ones, each with its own JVM."""
    return make_project(Cold())

"""What the crash tests share: warm processes and crash-free projects, made once. All of them need Spark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.register_assert_rewrite("crash.harness", "serve.serving")

from crash.harness import Answers, Project, Resident  # noqa: E402
from serve.serving import Warm  # noqa: E402

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.spark)


@dataclass(frozen=True)
class CrashFree:
    """A project after each batch, and the rows it had then. To be copied, never changed."""

    projects: dict[int, Project]
    rows: dict[int, Answers]


@pytest.fixture(scope="session")
def resident(warm: Warm) -> Resident:
    return Resident(warm)


@pytest.fixture(scope="session")
def crash_free(resident: Resident, tmp_path_factory: pytest.TempPathFactory) -> CrashFree:
    """Every batch applied in one go, with nothing in its way."""
    made = CrashFree({}, {})
    directory = tmp_path_factory.mktemp("crash-free")
    project = Project(directory / "0")
    for number in (1, 2, 3):
        project = project.copied(directory / str(number)) if project.root.exists() else Project(directory / "1")
        resident.run(project.batch(number), "apply").ended()
        made.projects[number], made.rows[number] = project, project.rows()
    return made


@pytest.fixture
def landed(crash_free: CrashFree, tmp_path: Path) -> Project:
    """A project that has landed its first batch."""
    return crash_free.projects[1].copied(tmp_path / "project")

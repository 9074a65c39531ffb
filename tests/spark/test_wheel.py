"""The wheel that `make dist` builds has all that the package needs: installed elsewhere, it runs the demo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "headwater"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as the Makefile builds it, elsewhere."""
    directory = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel. The locked packages are those of this one, found by a path: `.pth` files of
    this one, and with them the checkout, have no effect there."""
    directory = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    python = directory / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    (packages,) = directory.glob("lib/python*/site-packages")
    (packages / "locked.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return directory


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    expected = {p.relative_to(SOURCE.parent).as_posix() for p in SOURCE.rglob("*") if p.is_file()}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
        texts = {name.rpartition("/")[2]: archive.read(name).decode() for name in archive.namelist()}
    assert packed == {name for name in expected if not name.endswith(".pyc")}
    assert "headwater/py.typed" in packed and "headwater/app/templates/init/gitignore" in packed
    assert "Requires-Python: >=3.11\n" in texts["METADATA"]
    for program in ("headwater", "hw"):
        assert f"{program} = headwater.interfaces.cli.main:run" in texts["entry_points.txt"]


@pytest.mark.spark
def test_the_demo_runs_from_the_installed_wheel(environment: Path, tmp_path: Path) -> None:
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")}

    def run(*words: str) -> str:
        done = subprocess.run(
            [environment / "bin" / words[0], *words[1:]], cwd=tmp_path, env=inherited, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = run("python", "-c", "import headwater, pyspark; print(headwater.__file__, pyspark.__file__)").split()
    assert Path(where[0]).is_relative_to(environment)
    assert Path(where[1]).is_relative_to(sysconfig.get_path("purelib")), "the locked packages"
    assert "ok       spark: " in run("headwater", "doctor")
    demo = json.loads(run("headwater", "demo", "shop", "--json"))
    assert {result["state"] for result in demo["pipelines"]} == {"success"}
    assert len(demo["rows"]) == 8
    assert (
        run("hw", "--project", "shop", "query", "SELECT sum(orders) AS n FROM report", "--format", "csv") == "n\n6000\n"
    )

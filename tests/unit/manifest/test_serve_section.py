"""`[serve]`: who may be reached where. What is refused is in tests/scenarios/manifest/serve.json."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.manifest.load import load_project
from headwater.manifest.spec import OtlpSection, ServeSection
from headwater.manifest.vocabulary import is_host, is_loopback


def section(root: Path, text: str, **environ: str) -> ServeSection:
    (root / "headwater.toml").write_text(text)
    return load_project(root, connectors=(), environ=environ).spec.serve


def test_nobody_else_can_reach_a_server_by_default(tmp_path: Path) -> None:
    assert is_loopback(section(tmp_path, "").host)


def test_a_server_with_a_token_may_listen_anywhere(tmp_path: Path) -> None:
    text = '[serve]\nhost = "0.0.0.0"\nhosts = ["data.example.com", "fe80::1"]\ntoken = "env:HEADWATER_TOKEN"\n'
    found = section(tmp_path, text)
    assert (found.host, found.hosts, found.token) == ("0.0.0.0", ("data.example.com", "fe80::1"), "env:HEADWATER_TOKEN")


def test_settings_of_the_environment_are_read_as_what_they_are(tmp_path: Path) -> None:
    found = section(tmp_path, "", HEADWATER_SERVE__PORT="0", HEADWATER_SERVE__HOSTS='["a.example"]')
    assert (found.port, found.hosts) == (0, ("a.example",))


def test_otlp_is_off_until_its_table_is_there(tmp_path: Path) -> None:
    assert section(tmp_path, "").otlp is None
    assert section(tmp_path, "[serve.otlp]\n").otlp == OtlpSection(grpc_port=4317, http_port=4318)
    found = section(tmp_path, "[serve.otlp]\ngrpc_port = 1\n", HEADWATER_SERVE__OTLP='{"http_port": 0}')
    assert found.otlp == OtlpSection(grpc_port=4317, http_port=0)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("LocalHost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.5", False),
        ("localhost.example.com", False),
    ],
)
def test_only_this_machine_reaches_a_loopback_address(host: str, loopback: bool) -> None:
    assert is_host(host)
    assert is_loopback(host) is loopback


@pytest.mark.parametrize("host", ["", "http://a", "a:80", "a b", "*.example.com", "-a", "a..b", "[::1]", "a" * 254])
def test_what_is_no_host_is_told_apart(host: str) -> None:
    assert not is_host(host)

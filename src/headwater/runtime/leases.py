"""Keeps the leases of units and jobs that are being worked on, from one thread, for as long as the work takes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.store.catalog import Catalog
from headwater.store.jobs import JobLease, renew_job
from headwater.store.units import Lease, lease_seconds, renew


class LeaseKeeper:
    """Renews every lease it was given to keep. A lease that is lost is dropped here; its commit will be refused."""

    def __init__(self, catalog: Catalog):
        self.catalog = catalog
        self._leases: dict[str, Lease | JobLease] = {}
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
    def keep(self, lease: Lease | JobLease) -> Iterator[None]:
        with self._lock:
            self._leases[_id(lease)] = lease
        try:
            yield
        finally:
            with self._lock:
                self._leases.pop(_id(lease), None)

    def _run(self) -> None:
        share = limits.LEASE_RENEW_SECONDS / limits.LEASE_SECONDS
        while not self._ended.wait(lease_seconds() * share):
            with self._lock:
                leases = list(self._leases.values())
            for lease in leases:
                self._renew(lease)

    def _renew(self, lease: Lease | JobLease) -> None:
        try:
            held = renew(self.catalog, lease) if isinstance(lease, Lease) else renew_job(self.catalog, lease)
        except HeadwaterError:
            return  # the catalog does not answer: the next round tries again, and the commit checks anyway
        if not held:
            with self._lock:
                self._leases.pop(_id(lease), None)


def _id(lease: Lease | JobLease) -> str:
    return lease.unit_id if isinstance(lease, Lease) else lease.job_id

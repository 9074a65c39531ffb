"""The rules for keys: the same rows do not land twice, and other rows are not taken for the same.

A key belongs to a table, whichever entry point it came from. The commit that lands the rows stores it, with a
fingerprint of what was sent. It is valid until it expires. From then on it is free, swept or not, unless the clock has
just jumped (`catalog/ledger.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from headwater.base import limits
from headwater.base.clock import now_us, to_text
from headwater.base.errors import HeadwaterError
from headwater.catalog.commit import Store
from headwater.catalog.ledger import LedgerKey, clock_is_confirmed, count_keys, oldest_expiry, taken_keys
from headwater.catalog.records import Commit, LedgerKeysCleared, LedgerSwept
from headwater.ingest.push_records import Accepted, Push


def fingerprint(push: Push) -> str:
    """`sha256:` and the hash of the body and of the settings that change its meaning."""
    if push.fingerprint is not None:
        return push.fingerprint
    lenient = "" if push.on_bad_row == "refuse" else f" {push.on_bad_row}"
    digest = hashlib.sha256(f"ndjson evolve={push.evolve}{lenient}\n".encode())
    digest.update(push.body)
    return "sha256:" + digest.hexdigest()


def check_key(key: str) -> None:
    """Raises HW-I04 for an empty, too long or unprintable key."""
    if not key.strip() or not key.isprintable() or len(key.encode()) > limits.KEY_BYTES:
        raise HeadwaterError(
            "HW-I04",
            f"an idempotency key is printable text of 1 to {limits.KEY_BYTES} bytes",
            hint="a UUID for each batch is a good one; keep it when you send the batch again",
        )


def replay(found: LedgerKey, sent: str) -> Accepted:
    """The first answer again, if the batch is the same. Raises HW-I01 if the key was used for another batch."""
    if found.fingerprint != sent:
        until = f"until {to_text(found.expires_us)}" if found.expires_us is not None else "for good"
        if found.expires_us is not None and found.expires_us <= now_us():
            until = "until commits of an hour confirm that this machine's clock is right"
        raise HeadwaterError(
            "HW-I01",
            f"the key was used for another batch of `{found.table}`: nothing was written",
            hint=f"give each batch a key of its own; this one is taken {until}",
            detail={"table": found.table, "snapshot_id": str(found.seq)},
        )
    return Accepted(str(found.seq), found.rows, found.bytes, replayed=True, rows_refused=found.refused)


def clear_keys(store: Store, table: str, keys: Sequence[str] | None, *, actor: str) -> int:
    """Forget keys of a table (None: all of them), so batches with these keys land again. Returns how many there
    were."""
    with store.catalog.snapshot() as connection:
        if keys is None:
            count, asked = count_keys(connection, table), None
        else:
            asked = tuple(taken_keys(connection, table, keys, now_us=0))
            count = len(asked)
    if count:
        store.commit(Commit(changes=(LedgerKeysCleared(table=table, keys=asked),), actor=actor))
    return count


def sweep(store: Store, *, actor: str) -> bool:
    """Drop expired keys, once the oldest of them has been expired for the time between two sweeps. Does nothing while
    the clock is far past the last commits."""
    now = now_us()
    with store.catalog.snapshot() as connection:
        oldest = oldest_expiry(connection)
        if oldest is None or oldest > now - limits.LEDGER_SWEEP_SECONDS * 1_000_000:
            return False
        if not clock_is_confirmed(connection, now):
            return False
    store.commit(Commit(changes=(LedgerSwept(before_us=now),), actor=actor))
    return True

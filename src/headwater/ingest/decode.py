"""Request bodies, compressed or not, as bytes of bounded size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from headwater.base import limits
from headwater.base.errors import HeadwaterError, RejectedBatch

Encoding = Literal["none", "gzip", "zstd"]
_CHUNK = 1 << 20


class TooLarge(RejectedBatch):
    """HW-I04 for a batch that is too large."""

    def __init__(self, most: int):
        hint = "cut it into several batches, each with a key of its own; the `files` connector takes files of any size"
        super().__init__("HW-I04", f"the batch is larger than {most >> 20} MiB (decompressed)", hint=hint)

    def __reduce__(self) -> tuple[object, ...]:
        return HeadwaterError, (self.code, self.message, self.hint)


def decoded(
    data: bytes,
    encoding: Encoding,
    *,
    most: int = limits.MAX_BODY_BYTES,
    grow: Callable[[int], None] = lambda _size: None,
) -> bytes:
    """The decompressed batch. Never holds more than `most` bytes of it. `grow` is called with the size of each part,
    and may raise. Raises `TooLarge`, and HW-I04 for data that does not match its encoding, or is cut off."""
    if encoding == "none":
        if len(data) > most:
            raise TooLarge(most)
        return data
    import pyarrow as pa

    if not data:  # even an empty text has compressed bytes
        raise _not_whole(encoding)
    parts: list[bytes] = []
    size = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), encoding) as stream:
            while part := stream.read(_CHUNK):
                size += len(part)
                if size > most:
                    raise TooLarge(most)
                grow(len(part))
                parts.append(part)
    except OSError as error:
        raise _not_whole(encoding) from error
    return b"".join(parts)


def _not_whole(encoding: Encoding) -> HeadwaterError:
    return HeadwaterError(
        "HW-I04", f"the batch is not whole {encoding} data", hint="nothing was written; send it again"
    )

"""Pushed rows: the ledger of their keys, and the one path on which they are coerced, written and committed.

Every entry point (HTTP, OTLP, dropped files, the command line) passes its batches to `Acceptor.accept`, or to
`land_written` if a batch does not fit in memory. This package knows neither the manifest nor HTTP: the caller checks
access and passes what the manifest says of a table.
"""

"""Pushed rows: the ledger of their keys, and the one path on which they are coerced, written and committed.

Every entry point (HTTP, OTLP, dropped files, the command line) passes its batches to an `Acceptor`. This package knows
neither the manifest nor HTTP: the caller checks access and passes what the manifest says of a table.
"""

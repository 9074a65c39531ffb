"""Pushed rows: the ledger of their keys, and the one way by which they are coerced, written and committed.

Every door (the command line, HTTP) hands bytes to `accept`. It knows no manifest and no HTTP: who may push, and what
the manifest says of a table, is told by the caller.
"""

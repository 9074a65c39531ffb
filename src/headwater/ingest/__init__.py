"""Pushed rows: the ledger of their keys, and the one way by which they are coerced, written and committed.

Every door (HTTP, OTLP, dropped files, the command line) hands its batches to `accept`, or to `written` where one is too
large to be held. They know no manifest and no HTTP: who may push, and what the manifest says of a table, is told by the
caller.
"""

"""How JSON and text become typed columns: bytes and a schema in, Arrow and errors out.

Every input path uses this package, in the server process and inside Spark executors. It opens no files, reads no clock
and knows no tables: its callers decide about evolution, ledger and dead letters from what it returns.
"""

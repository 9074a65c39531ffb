"""How JSON and text become typed columns: bytes and a schema in, Arrow and errors out.

Every door uses this room, in the server process and inside Spark executors alike. It opens no files, reads no
clock and knows no tables: evolution, ledger and dead letters are decided elsewhere from what it returns.
"""

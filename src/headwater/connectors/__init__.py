"""Sources: how they are discovered, cut into slices and read. One file or package per connector.

Nothing here writes, knows the catalog or imports pyspark; a read is a plain function that runs in executors.
"""

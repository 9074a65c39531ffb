"""The context store: a directory of Parquet and JSON whose truth is the catalog.

Owns the layout, the catalog, the commit, the log, the one Parquet writer, views and gc. Knows nothing of
pipelines' manifests, of connectors or of Spark.
"""

"""The files of a store: where they are, the one Parquet writer, row hashes. Knows nothing of the catalog."""

"""The `files` connector: NDJSON, JSON, CSV and Parquet files, each landed once."""

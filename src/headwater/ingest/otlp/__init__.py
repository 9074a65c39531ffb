"""OTLP as rows: requests of logs, traces and metrics, read from protobuf or JSON, and what they are as NDJSON.

Pure: bytes in, lines out. Nothing here judges a value of a row: that is left to the one coercion that all pushes share.
"""

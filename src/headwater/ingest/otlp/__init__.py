"""OTLP as rows: requests for logs, traces and metrics, read from protobuf or JSON, as NDJSON.

Pure: bytes in, lines out. Values are not checked here: the coercion that all pushes share does that.
"""

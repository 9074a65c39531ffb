"""The manifest: what a project declares, read from TOML and JSON, checked as a whole, edited without loss.

This room knows files and words, never data: it does not open a source, a store or Spark. It is told the names of
the connectors, because they stand on the same floor.
"""

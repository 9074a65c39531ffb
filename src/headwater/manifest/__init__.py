"""The manifest: what a project declares, read from TOML and JSON, checked as a whole, edited without loss.

This package knows files and text, never data: it opens no source, no store and no Spark. It knows connectors only by
their registration.
"""

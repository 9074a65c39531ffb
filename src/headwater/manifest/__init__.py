"""The manifest: what a project declares, read from TOML and JSON, checked as a whole, edited without loss.

This package knows files and text, never data: it opens no source, no store and no Spark. Of connectors it knows what
their registration says.
"""

"""Headwater keeps data fresh on demand. `headwater.app` holds what a user can do; the rooms below it do it."""

__version__ = "0.1.0"

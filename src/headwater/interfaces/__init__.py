"""Interfaces: each renders the answers of `headwater.app`, and decides nothing."""

"""Faces: each renders what `headwater.app` answers, and decides nothing."""

"""What Headwater reports to operators: spans of runs, ripples, slices and commits, and counters.

This package only observes: it decides nothing and stores nothing, and its failures stop no work.
"""

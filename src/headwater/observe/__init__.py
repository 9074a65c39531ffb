"""What Headwater tells of itself to those who watch over it: spans of runs, ripples, slices and commits.

It looks on. It decides nothing, stores nothing, and what it cannot tell stops no work.
"""

"""What has to run, and when: the demand-driven scheduler as a pure state machine.

Ponds, ripples and numbers only: no manifest, no Spark, no clock, no files. Time is an argument, effects are
records, and the same state with the same events always gives the same effects.
"""

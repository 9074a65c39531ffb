"""Spark, and the only package that uses it: finds Java, starts a session fast, turns reads into frames and frames into
files of the one writer.

It does not decide what runs or when, and it commits nothing.
"""

"""Runs pipelines: plans the work, stores it as jobs, and does it, so that a failure at any point can be continued.

Knows the manifest, the connectors, the store and Spark; decides nothing about how an interface shows it.
"""

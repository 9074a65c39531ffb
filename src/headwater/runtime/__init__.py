"""Runs pipelines: plans what is to be done, stores it as work, does it, and ends well whatever happens.

Knows the manifest, the connectors, the store and Spark; decides nothing about the face that shows it.
"""

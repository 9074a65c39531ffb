"""What every room stands on: errors, ids, clock, limits, types, schema, durable files, crash points.

Nothing here knows pipelines, Spark, SQL or the network.
"""

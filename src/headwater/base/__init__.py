"""What every package uses: errors, ids, clock, limits, types, schema, durable files, crash points.

Nothing here knows pipelines, Spark, SQL or the network.
"""

"""The catalog: what is committed, and what is under way. Its tables, the commit, the log, leases, the queue, the inbox.

Knows nothing of manifests, connectors or Spark. Files are written, read and deleted by `storage`.
"""

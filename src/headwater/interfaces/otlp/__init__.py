"""The OTLP face: exporters of OpenTelemetry send logs, traces and metrics to it, over gRPC and HTTP. What it takes goes
the way of all pushed rows."""

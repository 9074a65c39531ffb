"""The OTLP interface: OpenTelemetry exporters send logs, traces and metrics to it, over gRPC and HTTP. Its rows land as
all pushed rows do."""

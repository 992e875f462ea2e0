"""Spans of distributed tracing: Jaeger JSON, OTLP (JSON lines and protobuf) and Zipkin v2 (`docs/spans.md`)."""

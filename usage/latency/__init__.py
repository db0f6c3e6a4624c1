"""Latency and errors of calls, by hour, model and provider."""

"""Micro apps: publishing their bundles, and which version a client is offered."""

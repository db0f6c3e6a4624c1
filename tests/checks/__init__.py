"""Checks of `make test`, `make test-full` and `make test-wire`, beside servers of ``python -m tests.tools with``."""

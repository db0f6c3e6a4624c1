"""What `make test`, `make test-full` and `make test-wire` run, beside servers of ``python -m tests.tools with``."""

"""Checks of `make test` and of its kin (test-full, test-wire, test-pythons, test-rest), beside servers."""

"""Stand-ins of the servers that the service talks to, shared by `make run`, the tests and the bench."""

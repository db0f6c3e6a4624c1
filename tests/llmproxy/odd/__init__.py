"""Odd answers of providers: a table of what the world's servers send, and what every caller has to read."""

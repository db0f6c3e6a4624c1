"""Operators' second factors: how they are set up, proved and lost, and the sessions they guard."""

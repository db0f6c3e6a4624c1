"""Drills: what operators do on a bad day, by the commands of the documentation, on real servers."""

"""Usage and costs of calls: counted by day, summed, ranked, and stated."""

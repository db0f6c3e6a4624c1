"""Usage and costs of calls: counted by day, summed, ranked, corrected and stated."""

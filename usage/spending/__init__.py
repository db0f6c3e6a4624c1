"""What calls used and cost: counted by day, summed and ranked, and on statements."""

"""What happens to callers, and to every sum, while something that the service needs is ill; see docs/faults.md."""

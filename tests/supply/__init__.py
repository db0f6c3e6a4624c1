"""The supply chain: the bill of materials, known faults of locked packages, secrets in the repository."""

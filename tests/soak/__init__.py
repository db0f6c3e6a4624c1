"""Mixed traffic with a fault now and then, for as long as one likes, and whether anything grows; see docs/soak.md."""

"""What happens to a submitted form beside its action: it counts once, and a second proof does not lose it."""

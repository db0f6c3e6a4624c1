"""The pages on which operators set up and prove their second factor, and look after their own sign-in."""

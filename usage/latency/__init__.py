"""How long calls take and how many fail, by hour, model and provider."""

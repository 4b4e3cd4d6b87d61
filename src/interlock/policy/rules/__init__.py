"""Permission rules: their syntax, where they come from, and what they say of a call."""

"""Where logs are kept: the protocol of `store.py`, and a module for each store that meets it."""

"""Secrets are taken out before anything is admitted: the model, the log and all that is made of it hold a mark instead."""

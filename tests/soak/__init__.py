"""Soak: real workers on SQLite and PostgreSQL under a nemesis, and a checker that reads what happened. `make soak`."""

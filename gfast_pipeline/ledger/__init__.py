"""The append-only evidence: one immutable file an event; the database is only its index."""

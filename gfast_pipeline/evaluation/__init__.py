"""From visits to a decision: figures, bootstrap, rules, noise. Standard library only; no database, no device."""

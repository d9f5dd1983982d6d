"""Understands: trace → timeline → breakdown → efficiency. Never imports torch."""

"""Verdicts: the sentences that a reader sees before any chart, of a run and of a study."""

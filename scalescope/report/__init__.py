"""Shows what was measured and understood: terminal, HTML page, W&B. Never imports torch."""

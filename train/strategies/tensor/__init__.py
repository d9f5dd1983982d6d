"""Tensor parallel: what it is (config), and its torch half (strategy)."""

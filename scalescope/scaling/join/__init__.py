"""The ranks of one job, joined: what their summaries say together."""

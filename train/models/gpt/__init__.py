"""A GPT-2-style decoder (Radford et al. 2019): what it is (config), and its torch half (network, attention)."""

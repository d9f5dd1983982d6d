"""Waits for cores, in words: of a change between two measurements, and of the growth of a study's step."""

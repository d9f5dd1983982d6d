"""Whether a device's times can be: by its host's clock, and by the order in which its streams run things."""

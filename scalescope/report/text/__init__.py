"""Text for what `scaling` finds: a table each from codes to text, and sentences made of it."""

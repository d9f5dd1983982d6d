"""Words for what `scaling` finds: a table each from codes to words, and sentences made of them."""

"""A step that loses nothing worth a word around its compute: what it consists of, and what of that is wasteful."""

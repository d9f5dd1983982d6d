"""How a study is told: its efficiency, the factors of it, and what a growing step lost."""

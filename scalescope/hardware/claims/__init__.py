"""What data sheets promise, what others measured, what articles say, and what each of it is worth. Torch-free."""

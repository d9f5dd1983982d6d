"""What the annotations on the thread of the training loop say that it does."""

"""The step as run: the replayed step whose hosts' times are less what recording cost them."""

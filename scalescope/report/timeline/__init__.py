"""One step of all ranks in the page: as a picture that needs no script, and to zoom into."""

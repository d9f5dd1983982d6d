"""What the parts of the step tell by themselves, where no replay prices it: a rank apart, and what nothing explains."""

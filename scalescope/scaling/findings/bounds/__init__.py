"""What steps tell by themselves, where no replay prices it: a rank apart, rounds of messages, what nothing explains."""

"""What steps tell by themselves, where no detector of a replay does: a rank apart, rounds of messages, what is left."""

"""What gloo's records leave out: of which group a collective is, and who sends to whom."""

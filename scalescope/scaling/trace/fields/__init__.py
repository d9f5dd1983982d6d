"""The fields of a trace's events as columns, straight from its text: in C (compiled), or of decoded events (fields)."""

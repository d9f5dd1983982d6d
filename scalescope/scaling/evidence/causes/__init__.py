"""Causes of lost host time, told by what the hosts of all ranks say side by side; a file a code of the vocabulary."""

"""Profiles of ONNX Runtime, as the events that a Kineto trace has."""

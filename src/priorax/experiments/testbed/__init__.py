"""The Neural Testbed: joint predictions against a known generative model."""

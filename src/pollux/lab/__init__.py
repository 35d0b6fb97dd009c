"""The paper's experiments, the benchmark of quality, data sets and pretraining. Nothing outside imports it."""

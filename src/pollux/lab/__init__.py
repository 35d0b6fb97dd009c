"""The paper's experiments, the quality benchmark, data sets and pretraining. No other package imports it."""

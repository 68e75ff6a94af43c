"""The paper's problems, for benchmarks, tests and its reproduction."""

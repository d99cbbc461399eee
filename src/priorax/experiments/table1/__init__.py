"""Table 1: what each method does and does not, measured."""

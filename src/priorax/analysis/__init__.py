"""Analysis of runs: inspecting checkpoints, recording episodes, and running many in parallel."""

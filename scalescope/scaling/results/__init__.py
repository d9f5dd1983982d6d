"""Results of other benchmarks as rows of ours: SuperBench's, and MLPerf's."""

"""Where figures go while a job runs: W&B, TensorBoard."""

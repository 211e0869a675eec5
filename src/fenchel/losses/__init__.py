"""Training losses and the test-time objectives they imply."""

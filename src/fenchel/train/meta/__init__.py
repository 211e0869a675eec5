"""Learning the test-time objective itself, by differentiating through the adaptation step."""

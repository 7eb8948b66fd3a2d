"""What the server and the guard cost, as ratios against baselines measured in the same run."""

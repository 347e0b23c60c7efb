"""What a study asks about the insides of its runs: measured once, kept beside each run."""

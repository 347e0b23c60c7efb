"""The report of a study: its page, plots and words."""

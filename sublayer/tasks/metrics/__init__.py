"""The metrics of tasks, from predictions and what is right."""

"""Runs of any trainer judged: tables and folders read, their columns understood, verdicts."""

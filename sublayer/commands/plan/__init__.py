"""``sublayer plan``: its options, and how a plan is printed."""

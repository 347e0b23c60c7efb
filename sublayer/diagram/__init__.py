"""Diagrams of architectures, drawn from a recipe: the figure, as SVG and as text."""

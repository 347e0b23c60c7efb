"""Diagrams of architectures, drawn from a recipe: what is drawn, as SVG and as text."""

"""Architecture diagrams of recipes, as SVG and as text."""

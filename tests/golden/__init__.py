"""Golden results: numbers that today's program computes, held to the bit or to a tolerance.

``make golden`` writes them anew; its diff is reviewed like code. ``data/`` holds the results that
every machine shares, in a JSON file per subject; ``kinds/`` those that hold to the bit, in a folder
for each kind of processor (``core.kind``).
"""

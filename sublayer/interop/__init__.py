"""Models in and out of other systems' formats, each with a certificate of their agreement."""

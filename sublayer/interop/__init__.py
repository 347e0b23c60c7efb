"""Models in and out of other systems' formats, each with a certificate of how closely the two agree."""

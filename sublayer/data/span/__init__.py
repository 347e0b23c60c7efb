"""Span corruption: pieces of a text, which of their tokens are cut out, inputs and targets."""

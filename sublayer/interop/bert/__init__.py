"""BERT's and ALBERT's configs and weights."""

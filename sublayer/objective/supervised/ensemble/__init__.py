"""Several fine-tuned models that answer together: checked, averaged, chosen, scored."""

"""The schedulers of clusters: what each is asked, and how."""

"""The runs of a comparison on the nodes of a cluster: tasks of Ray or Slurm, in a shared folder."""

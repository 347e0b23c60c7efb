"""How large models are."""

import torch

from sublayer.study.scorecard import Cell
from sublayer.suite.candidate import Candidate
from sublayer.suite.found import Column, Found
from sublayer.suite.measure import Measure


class Parameters(Measure):
    """The number of parameters, heads included."""

    columns = (Column("parameters", "parameters", is_lower_better=True, decimals=0),)
    title = "counting parameters"

    def refusal(self, candidate: Candidate) -> str:
        """Count those of every model."""
        return ""

    def score(self, candidate: Candidate, device: torch.device) -> Found:
        """Count them, those that are shared once."""
        return Found(self.columns, {"parameters": Cell(candidate.n_parameters)})

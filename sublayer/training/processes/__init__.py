"""The processes that train together: the part of a step that each computes, and how they agree."""

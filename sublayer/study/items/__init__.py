"""The items of all runs of a study in one small file, that a record can keep."""

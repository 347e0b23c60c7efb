"""Byte-pair encoding: trained, applied, read from files that are probed first."""

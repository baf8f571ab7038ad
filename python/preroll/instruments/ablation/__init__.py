"""Experiments on a start: one variable changed, runs in pairs, an exact verdict.

change -> state -> measure -> raw file -> exact and sequential statistics -> verdict -> text.
"""

"""Pure formulas, one file per subject: SI units, no file, no clock, no random source.

Each docstring gives shapes, units, validity, what is ignored and the source. A value outside the
validity raises `preroll.errors.InputError`.
"""

"""`python -m preroll`."""

from preroll.cli.main import main

main()

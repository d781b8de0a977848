"""``python -m service`` is the command ``pinhole``."""

from service.cli import main

main(prog_name="pinhole")

"""`python -m streamling` is `streamling`."""

from streamling.cli.main import entry

if __name__ == "__main__":
    entry()

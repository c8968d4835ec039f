"""`python -m streamcodec`."""

from streamcodec.cli import program

if __name__ == "__main__":
    program()

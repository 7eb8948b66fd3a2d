"""`python -m server` is `headway`."""

from server.cli import main

if __name__ == "__main__":
    main()

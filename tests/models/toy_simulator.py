"""A simulator in a process of its own, without jax: a draw a line, its log density and gradient a line."""

import random
import sys


def main() -> None:
    """A normal around (1, −2) with standard deviations 2 and ½; one run in ten fails."""
    chance = random.Random(int(sys.argv[1]))
    for line in sys.stdin:
        x, y = map(float, line.split())
        if chance.random() < 0.1:
            print("failed", flush=True)
        else:
            a, b = (x - 1) / 2, (y + 2) / 0.5
            print(-0.5 * (a * a + b * b), -a / 2, -b / 0.5, flush=True)


if __name__ == "__main__":
    main()

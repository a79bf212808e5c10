#!/usr/bin/env python3
"""Draws digits to train on: images.npy [N, 1, 28, 28] and labels.npy [N].

Seven-segment digits, a little shifted, in random brightness, with noise. The
same seed draws the same pictures. Needs Python alone.
"""
import argparse
import array
import pathlib
import random
import sys

# Which of the seven segments are lit; in the order top, upper left, upper
# right, middle, lower left, lower right, bottom.
SEGMENTS = ["1110111", "0010010", "1011101", "1011011", "0111010",
            "1101011", "1101111", "1010010", "1111111", "1111011"]
WIDTH, HEIGHT = 9, 17


def boxes(digit):
    """The lit boxes of a digit as (x, y, width, height)."""
    middle = HEIGHT // 2
    places = [(0, 0, WIDTH, 2), (0, 0, 2, middle + 1), (WIDTH - 2, 0, 2, middle + 1),
              (0, middle - 1, WIDTH, 2), (0, middle, 2, middle + 1),
              (WIDTH - 2, middle, 2, middle + 1), (0, HEIGHT - 2, WIDTH, 2)]
    return [place for place, lit in zip(places, SEGMENTS[digit]) if lit == "1"]


def draw(digit, rng):
    """One picture, 784 floats with mean near 0."""
    picture = [rng.gauss(-0.4, 0.25) for _ in range(28 * 28)]
    left, top = rng.randint(7, 12), rng.randint(3, 8)
    ink = rng.uniform(0.9, 1.8)
    for x, y, w, h in boxes(digit):
        for row in range(top + y, top + y + h):
            for column in range(left + x, left + x + w):
                picture[28 * row + column] = ink + rng.gauss(0, 0.15)
    return picture


def npy(descr, shape, values):
    """A C-ordered array in NumPy's format, version 1.0."""
    header = "{'descr': %r, 'fortran_order': False, 'shape': %r, }" % (descr, shape)
    header += " " * (-(len(header) + 11) % 64) + "\n"
    if sys.byteorder != "little":
        values.byteswap()
    return (b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") +
            header.encode("latin-1") + values.tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", default=".", help="folder for the arrays")
    parser.add_argument("-n", type=int, default=512, help="pictures")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    labels = [rng.randrange(10) for _ in range(options.n)]
    images = array.array("f")
    for label in labels:
        images.extend(draw(label, rng))
    folder = pathlib.Path(options.output)
    arrays = {"images.npy": npy("<f4", (options.n, 1, 28, 28), images),
              "labels.npy": npy("<i8", (options.n,), array.array("q", labels))}
    # The names are ours: somebody else's files may have them.
    for name, data in arrays.items():
        path = folder / name
        if path.exists() and path.read_bytes() != data:
            sys.exit("digits.py: %s is there with other content; remove it, or name another "
                     "folder with -o" % path)
    for name, data in arrays.items():
        (folder / name).write_bytes(data)
    print("%d pictures in %s" % (options.n, folder))


if __name__ == "__main__":
    main()

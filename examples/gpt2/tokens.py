#!/usr/bin/env python3
"""Cuts a text into rows of bytes for the model: TEXT [-o tokens.npy] [--length 64].

A token is a byte, so nothing has to be trained or downloaded. The result is an
int64 array [rows, length]; a last, shorter row is dropped. Needs Python alone.
"""
import argparse
import array
import sys


def save_npy(path, descr, shape, data):
    """Writes a C-ordered array in NumPy's format, version 1.0."""
    header = "{'descr': %r, 'fortran_order': False, 'shape': %r, }" % (descr, shape)
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little"))
        file.write(header.encode("latin-1"))
        file.write(data)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", nargs="+", help="files, read as bytes")
    parser.add_argument("-o", "--output", default="tokens.npy")
    parser.add_argument("--length", type=int, default=64, help="tokens in a row")
    options = parser.parse_args()
    try:
        text = b"".join(open(name, "rb").read() for name in options.text)
    except OSError as error:
        sys.exit("tokens.py: %s: %s; give the path of a text" % (error.filename, error.strerror))
    rows = len(text) // options.length
    if rows == 0:
        sys.exit("tokens.py: the text is shorter than one row: give a longer one, or a smaller --length")
    tokens = array.array("q", list(text[: rows * options.length]))
    if sys.byteorder != "little":
        tokens.byteswap()
    save_npy(options.output, "<i8", (rows, options.length), tokens.tobytes())
    print("%s: %d rows of %d tokens" % (options.output, rows, options.length))


if __name__ == "__main__":
    main()

"""The models that gpu_check.py takes the times of: their sizes, and weights and data that are made where they run."""
import array
import random

SIZE, COUNT, LENGTH = 4, 4, 1024  # GPT-2: microbatch, microbatches, positions
GPT2 = dict(layers=12, width=768, heads=12, length=LENGTH, vocabulary=50257)
STEPS = 12
IMAGES = 32  # ResNet-50: a microbatch
# FLOPs of a step: six for each weight of a product and each token, attention's own; three passes over 4.09 GMACs.
TOKEN_FLOPS = 6 * (12 * 12 * 768 ** 2 + 50257 * 768) + 12 * 12 * 768 * LENGTH
IMAGE_FLOPS = 3 * 2 * 4.09e9


def write_numbers(file, count):
    """Numbers between 2^-6 and 2^-5 of either sign, the same bits everywhere: so that the digest in the plan is right."""
    generator = random.Random(1)
    while count > 0:
        part = min(count, 1 << 18)
        fractions = int.from_bytes(b"\xff\xff\x7f\x80" * part, "little")
        exponents = int.from_bytes(b"\x00\x00\x80\x3c" * part, "little")
        file.write((generator.getrandbits(32 * part) & fractions | exponents).to_bytes(4 * part, "little"))
        count -= part


def write_weights(folder, count):
    with open(folder / "weights.bin", "wb") as file:
        write_numbers(file, count)


def write_images(folder, rows):
    """Pictures of noise and labels for them, as .npy."""
    generator = random.Random(3)
    for name, kind, shape, data in (("input", "<f4", (rows, 3, 224, 224), None),
                                    ("labels", "<i8", (rows,), [generator.randrange(1000) for _ in range(rows)])):
        header = str({"descr": kind, "fortran_order": False, "shape": shape}).ljust(117) + "\n"
        (folder / (name + ".npy")).write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() +
                                               (array.array("q", data).tobytes() if data else b""))
    with open(folder / "input.npy", "r+b") as file:
        file.seek(128)
        write_numbers(file, rows * 3 * 224 * 224)


def write_tokens(path, rows):
    """An array of `rows` sequences of tokens, as .npy."""
    generator = random.Random(2)
    length = GPT2["length"]
    tokens = [[generator.randrange(GPT2["vocabulary"]) for _ in range(length)] for _ in range(rows)]
    header = str({"descr": "<i8", "fortran_order": False, "shape": (rows, length)}).ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() +
                     array.array("q", sum(tokens, [])).tobytes())

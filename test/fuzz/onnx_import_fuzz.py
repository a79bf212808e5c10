#!/usr/bin/env python3
"""Fuzzes the importer: collects seeds, then starts the libFuzzer binary.

Usage: onnx_import_fuzz.py FUZZER ONNX_FROM_TEXT FOLDER [SECONDS]
Seeds are the committed models and every model in text of test/onnx. Without SECONDS a fixed number of inputs in a fixed
order (the test); with them new ones for so long, and FOLDER keeps what widens the coverage.
"""
import glob, os, re, shutil, subprocess, sys


def seeds(from_text, folder):
    tests = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    for path in glob.glob(f"{tests}/models/*/model.onnx"):
        shutil.copy(path, f"{folder}/{os.path.basename(os.path.dirname(path))}.onnx")
    for path in glob.glob(f"{tests}/onnx/*.test"):
        stem = os.path.splitext(os.path.basename(path))[0]
        parts = re.split(r"^#--- (\S+)\n", open(path).read(), flags=re.M)
        for name, text in zip(parts[1::2], parts[2::2]):
            if not name.endswith(".txt"):
                continue
            source = f"{folder}/seed.txt"
            with open(source, "w") as out:
                out.write(text)
            # Some texts of the tests are meant not to parse.
            subprocess.run([from_text, source, f"{folder}/{stem}-{name[:-4]}.onnx"], capture_output=True)
            os.remove(source)


def main():
    fuzzer, from_text, folder = sys.argv[1:4]
    how = [f"-max_total_time={sys.argv[4]}"] if len(sys.argv) > 4 else ["-seed=1", "-runs=30000"]
    if len(sys.argv) <= 4:
        shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(f"{folder}/seeds", exist_ok=True)
    os.makedirs(f"{folder}/found", exist_ok=True)
    seeds(from_text, f"{folder}/seeds")
    if len(os.listdir(f"{folder}/seeds")) < 20:
        sys.exit("too few seeds: the models of test/onnx were not found")
    sys.exit(subprocess.run(
        [fuzzer, *how, "-max_len=40000", "-timeout=20", "-rss_limit_mb=6000", f"-artifact_prefix={folder}/",
         "-print_final_stats=1", f"{folder}/found", f"{folder}/seeds"],
        env={**os.environ, "ASAN_OPTIONS": "allocator_may_return_null=0:max_allocation_size_mb=4096"}).returncode)


main()

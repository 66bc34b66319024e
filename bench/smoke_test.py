"""Starts a benchmark program for the shortest time that it can run: every benchmark must run, and none may fail.

    smoke_test.py PROGRAM           a program of Google Benchmark
    smoke_test.py --plain PROGRAM   a program that prints the benchmark schema, or says that its device is missing
"""
import json
import pathlib
import subprocess
import sys
import tempfile


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def smoke(program):
    expected = len(run(program, "--benchmark_list_tests").splitlines())
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        # 0 s: one iteration each.
        run(program, "--benchmark_min_time=0", f"--benchmark_out={report}", "--benchmark_out_format=json")
        rows = json.loads(report.read_text(encoding="utf-8"))["benchmarks"]
    failed = [f"  {row['name']}: {row.get('error_message', '')}" for row in rows if row.get("error_occurred")]
    if failed:
        sys.exit(f"{len(failed)} of {len(rows)} benchmarks failed:\n" + "\n".join(failed))
    if expected == 0 or len(rows) != expected:
        sys.exit(f"{len(rows)} benchmarks reported; {program} lists {expected}")
    print(f"{len(rows)} benchmarks ran")


def smoke_plain(program):
    text = run(program)
    if "nothing measured" in text:
        print(text.strip())
        return
    rows = json.loads(text)["rows"]
    if not rows:
        sys.exit(f"{program} reports no rows")
    print(f"{len(rows)} rows")


if __name__ == "__main__":
    if sys.argv[1] == "--plain":
        smoke_plain(sys.argv[2])
    else:
        smoke(sys.argv[1])

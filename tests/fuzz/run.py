#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Run the fuzz targets of a build folder: run.py BUILD [SECONDS [TARGET...]]

New inputs stay in BUILD/fuzz/corpus; a finding is written to BUILD/fuzz/findings, with a capture of its packets
beside it where the target deals in packets, and ends the run with 1.
"""
import contextlib
import os
import pathlib
import subprocess
import sys


# Freed memory is kept from use for a while, but not so much of it that each run gets fresh pages.
SANITIZER = {"ASAN_OPTIONS": "quarantine_size_mb=16:malloc_context_size=4"}


def make_captures(build, findings, name):
    for finding in findings.glob(name + "-*"):
        if finding.suffix == ".pcap":
            continue
        pcap = finding.with_suffix(".pcap")
        # It fails again, of course, or runs for ever; what was written until then counts.
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([build / "tests" / ("replay_" + name), "--pcap", pcap, finding], timeout=10,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        print("finding: %s%s" % (finding, ", packets: %s" % pcap if pcap.exists() else ""))


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1])
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    names = sys.argv[3:] or sorted(p.name[5:] for p in (build / "fuzz").glob("fuzz_*"))
    if not names:
        sys.exit("run.py: no fuzz targets in %s: was it configured with ROCELINK_FUZZ?" % build)
    seeds = pathlib.Path(__file__).resolve().parent / "corpus"
    findings = build / "fuzz" / "findings"
    findings.mkdir(exist_ok=True)
    bad = []
    for name in names:
        corpus = build / "fuzz" / "corpus" / name
        corpus.mkdir(parents=True, exist_ok=True)
        command = [
            str(build / "fuzz" / ("fuzz_" + name)),
            "-max_total_time=%d" % seconds,
            "-timeout=60",
            "-rss_limit_mb=1024",
            "-print_final_stats=1",
            "-artifact_prefix=%s/%s-" % (findings, name),
            str(corpus),
        ]
        if (seeds / name).is_dir():
            command.append(str(seeds / name))
        run = subprocess.run(command, stderr=subprocess.PIPE, text=True, env=dict(SANITIZER, **os.environ), check=False)
        lines = run.stderr.splitlines()
        stats = [l.split()[-1] for l in lines if l.startswith("stat::number_of_executed_units")]
        cover = [l for l in lines if " cov: " in l]
        cov = cover[-1].split(" cov: ")[1].split()[0] if cover else "?"
        print("%-16s %s: %s runs, %s edges" %
              (name, "ok" if run.returncode == 0 else "FOUND SOMETHING", stats[0] if stats else "?", cov), flush=True)
        if run.returncode != 0:
            bad.append(name)
            print("\n".join(lines[-60:]))
            make_captures(build, findings, name)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

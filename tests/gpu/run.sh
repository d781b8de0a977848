#!/usr/bin/env bash
# All tests on a GPU machine, none of the GPU's skipped, then the benchmarks; a short table comes last.
#
#   bash tests/gpu/run.sh                          tests, then benchmarks
#   bash tests/gpu/run.sh tests [PYTEST ARGUMENT…] tests alone
#   bash tests/gpu/run.sh bench [NAME…]            benchmarks alone (bench_gpu unless named); transfer and frame are
#                                                  pinhole's own: table, JSON, HTML and PNG, under 90 s together on an H200
#   bash tests/gpu/run.sh sanitize                 every op under compute-sanitizer, where it is installed
#   bash tests/gpu/run.sh compare [ARGUMENT…]      bench_compare alone: Pinhole on the GPU beside OpenCV + Flask (8 minutes)
#
# Made for a bare machine: python3 >= 3.10 with CuPy, NumPy, OpenCV, pytest, pytest-timeout, hypothesis and psutil, and no
# network. What else is needed comes from the wheels in .whl/ (fetch_wheels.sh fills it). Pinhole itself is not installed:
# it runs from this folder. Everything is written under ${OUT:-build/gpu}. PINHOLE_COMMIT names the commit where there is
# no git; PINHOLE_REQUIRE_GPU=0 lets the GPU's tests be skipped.
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$(mkdir -p "${OUT:-build/gpu}" && cd "${OUT:-build/gpu}" && pwd)
part=all
case "${1:-}" in
    all | tests | bench | compare | sanitize)
        part=$1
        shift
        ;;
esac

if compgen -G ".whl/*.whl" >/dev/null; then
    site=${TMPDIR:-/tmp}/pinhole-site
    python3 -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$site" .whl/*.whl ||
        exit 1
    export PYTHONPATH="$site:$PWD${PYTHONPATH:+:$PYTHONPATH}"
else
    export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
fi
export PINHOLE_REQUIRE_GPU=${PINHOLE_REQUIRE_GPU-1}

# Side by side where pytest-xdist is there: the oracles are slow on purpose, and the machine is lent by the minute.
workers=()
python3 -c 'import xdist' 2>/dev/null && [ "$(nproc)" -ge 8 ] && workers=(-n "$(nproc)" --dist worksteal)

# Named as they happen: the machine's time may end before the run does.
export NOTE_FAILURES_IN="$out/failed.txt"
status=0
if [ "$part" = all ] || [ "$part" = tests ]; then
    python3 -m pytest "${workers[@]}" -p no:cacheprovider -p no:benchmark --junitxml="$out/tests.xml" --durations=15 "$@" 2>&1 | tee "$out/tests.log"
    status=${PIPESTATUS[0]}
fi

if [ "$part" = sanitize ]; then
    tool=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
    [ -x "$tool" ] || { echo "compute-sanitizer is not installed"; exit 1; }
    for check in memcheck racecheck; do
        echo "== $check"
        # --check-exit-code: a comparison that fails ends the program with 1.
        "$tool" --tool "$check" --error-exitcode 7 --check-exit-code yes python3 -m tests.gpu.sanitize 2>&1 |
            tee "$out/$check.txt" | tail -n 40
        [ "${PIPESTATUS[0]}" -eq 0 ] || status=1
    done
fi

names=()
arguments=()
case "$part" in
    all)
        names=(bench_gpu)
        ;;
    bench)
        names=("${@:-bench_gpu}")
        ;;
    compare)
        names=(bench_compare)
        arguments=(--memory zero_copy --runs 3 "$@")
        ;;
esac
for name in "${names[@]}"; do
    # Not NAME.log: a benchmark may keep its servers' log under that name.
    case "$name" in
        transfer | frame)
            files=$out/bench_$name
            command=(service bench "$name" --json "$files.json" --html "$files.html" --png "$files.png")
            ;;
        *) command=("tests.benchmarks.$name" --out "$out" "${arguments[@]}") ;;
    esac
    python3 -m "${command[@]}" 2>&1 | tee "$out/$name.txt"
    [ "${PIPESTATUS[0]}" -eq 0 ] || status=1
done

echo
echo "== summary"
python3 -c 'from tests.benchmarks.harness import describe, environment
print(describe({**environment(), "command": "bash tests/gpu/run.sh"}))'
[ "$part" = bench ] || [ "$part" = compare ] || [ "$part" = sanitize ] || {
    grep -E '^(FAILED|ERROR) |^=+ (GPU tests skipped|tests skipped)' "$out/tests.log"
    tail -n 1 "$out/tests.log"
}
for name in "${names[@]}"; do
    case "$name" in
        transfer) sed -n '/^## The fastest/,/^## host/p' "$out/$name.txt" | grep '^|' ;;
        frame) grep '^|' "$out/$name.txt" ;;
        *) [ ! -f "$out/$name.md" ] || grep '^|' "$out/$name.md" ;;
    esac
done
exit "$status"

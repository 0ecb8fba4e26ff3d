# The Python that runs the harness (not the one that is measured): 3.11 or newer, standard library only. Sourced.
bench_python() {
    local name
    for name in "${M0_BENCH_PYTHON:-}" python3 /usr/bin/python3 python3.14 python3.13 python3.12 python3.11; do
        [[ -n $name ]] && name=$(command -v -- "$name") || continue
        if "$name" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s\n' "$name"
            return
        fi
    done
    echo "ci/bench: needs Python 3.11 or newer: apt-get install python3, or set M0_BENCH_PYTHON" >&2
    exit 2
}

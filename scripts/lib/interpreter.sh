# What scripts/py314t and scripts/py313 share: finds or builds an interpreter, makes its virtual
# environment, builds m0serve for it. Sourced, never run. Bash 4.4 or newer.
#
# Owns ${XDG_CACHE_HOME:-~/.cache}/m0serve:
#   python-3.14.7t/      a CPython that was built here, complete as soon as its name exists (renamed into place)
#   python-3.14t.found   the path of one that uv installed
#   venv-314t-<key>/     a virtual environment; <key> hashes the interpreter and the requirements;
#                        usable once it holds the file .complete, which is written last
#   build-*/, *.lock     work in progress
# Everything for a person goes to stderr: stdout belongs to PYTHON=, VENV=, M0SERVE= and to COMMAND.

M0_ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
M0_CACHE=${XDG_CACHE_HOME:-${HOME:?HOME is not set, and neither is XDG_CACHE_HOME}/.cache}/m0serve
M0_REQUIREMENTS=("$M0_ROOT/apps/requirements.txt" "$M0_ROOT/tests/requirements.txt")

# Debian's source packages: "VERSION SHA256" of the .orig.tar.xz, the first that the mirror still has is taken.
M0_SOURCES_314=(
    "3.14.7 3b48dac8fb59f62eaa67ac83c1eb12bda1b7a08406dd286e252c11a66be27f81"
    "3.14.6 143b1dddefaec3bd2e21e3b839b34a2b7fb9842272883c576420d605e9f30c63"
    "3.14.5 7e32597b99e5d9a39abed35de4693fa169df3e5850d4c334337ffd6a19a36db6"
)
M0_SOURCES_313=(
    "3.13.5 93e583f243454e6e9e4588ca2c2662206ad961659863277afcdb96801647d640"
)

# What CPython needs to be compiled with every module that apps and tests use.
M0_BUILD_PACKAGES=(build-essential pkg-config xz-utils libssl-dev zlib1g-dev libffi-dev libsqlite3-dev
    libbz2-dev liblzma-dev libzstd-dev libreadline-dev libncurses-dev uuid-dev)

m0_say() { printf '%s: %s\n' "$M0_NAME" "$*" >&2; }
m0_die() { printf '%s: error: %s\n' "$M0_NAME" "$1" >&2; shift; (($# == 0)) || printf '  %s\n' "$@" >&2; exit 1; }

# Which interpreter this run is about: 3.14t or 3.13.
m0_select() {
    case $1 in
    3.14t) M0_VERSION=3.14 M0_FREE_THREADED=1 M0_TAG=314t M0_OVERRIDE=M0_PY314T M0_SOURCES=("${M0_SOURCES_314[@]}") ;;
    3.13) M0_VERSION=3.13 M0_FREE_THREADED=0 M0_TAG=313 M0_OVERRIDE=M0_PY313 M0_SOURCES=("${M0_SOURCES_313[@]}") ;;
    *) m0_die "no such interpreter: $1 (3.14t and 3.13 are known)" ;;
    esac
    M0_LABEL=$1
    M0_NAME=${M0_NAME:-py$M0_TAG}
    # Another interpreter's settings would make ours look for its library in the wrong place.
    unset PYTHONHOME PYTHONPLATLIBDIR __PYVENV_LAUNCHER__
}

# Prints the real path of the interpreter behind $1 (out of any virtual environment) when it can be used,
# else the reason on stderr and status 1.
m0_probe() {
    "$1" -I - "$M0_VERSION" "$M0_FREE_THREADED" <<'PY'
import os, sys, sysconfig
want, free = sys.argv[1], sys.argv[2] == "1"
have = "%d.%d" % sys.version_info[:2]
def no(why):
    sys.exit("%s: %s" % (sys.executable, why))
if sys.implementation.name != "cpython":
    no("is %s, not CPython" % sys.implementation.name)
if have != want or bool(sysconfig.get_config_var("Py_GIL_DISABLED")) != free:
    no("is %s%s" % (have, "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""))
exe = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
lib = os.path.join(sysconfig.get_config_var("LIBDIR") or "", sysconfig.get_config_var("LDLIBRARY") or "?")
if not sysconfig.get_config_var("Py_ENABLE_SHARED") or not os.path.exists(lib):
    no("has no shared library to link with (%s); on Debian: apt-get install python%s-dev" % (lib, want))
try:
    import ssl, sqlite3, zlib, ctypes, lzma, bz2, venv, ensurepip
except ImportError as e:
    no("lacks a module: %s; on Debian: apt-get install python%s-venv" % (e, want))
print(exe)
PY
}

# Takes $1 if it is what we look for. A candidate that is not is only mentioned.
m0_try() {
    local found
    [[ -x $1 ]] || return 1
    if found=$(m0_probe "$1" 2>"$M0_CACHE/probe.$$"); then
        rm -f "$M0_CACHE/probe.$$"
        M0_PYTHON=$found
        return 0
    fi
    [[ ${2-} == quiet ]] || m0_say "passing over $(tail -n 1 "$M0_CACHE/probe.$$")"
    rm -f "$M0_CACHE/probe.$$"
    return 1
}

# Sets M0_PYTHON to an interpreter that is already there.
m0_find() {
    local override=${!M0_OVERRIDE-} name=python$M0_VERSION dir version _
    ((M0_FREE_THREADED)) && name+=t
    if [[ -n $override ]]; then
        [[ $override == */* ]] || override=$(command -v -- "$override" || printf '%s' "$override")
        [[ -x $override ]] || m0_die "$M0_OVERRIDE=$override: no such program"
        M0_PYTHON=$(m0_probe "$override") || m0_die "$M0_OVERRIDE does not name a usable CPython $M0_LABEL (see above)"
        return
    fi
    while IFS= read -r -d : dir; do
        # pyenv's shims answer only for the version selected in this folder: its versions are looked at below.
        [[ $dir == */shims ]] && continue
        [[ -x $dir/$name ]] && m0_try "$dir/$name" && return
    done <<<"$PATH:"
    while IFS= read -r dir; do
        m0_try "$dir/bin/$name" && return
    done < <(printf '%s\n' "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$M0_VERSION"* | sort -rV)
    if [[ -s $M0_CACHE/python-$M0_LABEL.found ]]; then
        m0_try "$(<"$M0_CACHE/python-$M0_LABEL.found")" quiet && return
    fi
    for version in "${M0_SOURCES[@]}"; do
        read -r version _ <<<"$version"
        m0_try "$(m0_prefix "$version")/bin/$name" && return
    done
    return 1
}

m0_prefix() { printf '%s/python-%s%s' "$M0_CACHE" "$1" "${M0_TAG##*[0-9]}"; }

# Runs the rest of its arguments with the named lock held, so that two runs don't make the same thing twice.
m0_locked() {
    local lock=$M0_CACHE/$1.lock
    shift
    command -v flock >/dev/null || m0_die "flock is missing" "install it: apt-get install util-linux"
    exec 9>"$lock"
    if ! flock -n 9; then
        m0_say "another run is busy with ${lock##*/}; waiting for it"
        flock 9
    fi
    "$@"
    exec 9>&-
}

m0_uv() {
    local python
    command -v uv >/dev/null || return 1
    m0_say "installing CPython $M0_LABEL with uv"
    uv python install "$M0_LABEL" >&2 9>&- || { m0_say "uv could not; going on without it"; return 1; }
    python=$(uv python find --no-project --python-preference only-managed "$M0_LABEL" 9>&-) || return 1
    m0_try "$python" || return 1
    printf '%s\n' "$M0_PYTHON" >"$M0_CACHE/python-$M0_LABEL.found.$$"
    mv -f "$M0_CACHE/python-$M0_LABEL.found.$$" "$M0_CACHE/python-$M0_LABEL.found"
}

# Installs the packages named that are missing, or says what would.
m0_packages() {
    local missing=() package
    command -v dpkg-query >/dev/null || { m0_say "not a Debian system: taking the compiler and libraries as they are"; return 0; }
    for package in "$@"; do
        [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
    done
    ((${#missing[@]})) || return 0
    if ((EUID != 0)); then
        m0_die "these Debian packages are missing: ${missing[*]}" \
            "install them: sudo apt-get update && sudo apt-get install -y ${missing[*]}" "and run this again"
    fi
    m0_say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y --no-install-recommends "${missing[@]}" >&2 9>&- </dev/null && return 0
    m0_say "updating the package lists first"
    apt-get update >&2 9>&- </dev/null || m0_die "apt-get update failed"
    apt-get install -y --no-install-recommends "${missing[@]}" >&2 9>&- </dev/null ||
        m0_die "could not install: ${missing[*]}"
}

# Fetches the first source that the mirror still has into $1; sets M0_SOURCE_VERSION and M0_SOURCE_FILE.
m0_fetch_source() {
    local dir=$1 helper=/usr/lib/apt/apt-helper mirrors mirror version sum file
    [[ -x $helper ]] || m0_die "no CPython $M0_LABEL here, and no Debian to fetch its source from" \
        "set $M0_OVERRIDE to one (configured with --enable-shared$( ((M0_FREE_THREADED)) && printf ' --disable-gil')), or install uv"
    mirrors=$(apt-get indextargets --format '$(REPO_URI)' | sort -u)
    [[ -n $mirrors ]] || m0_die "apt knows no mirror (apt-get indextargets is empty)"
    for version in "${M0_SOURCES[@]}"; do
        read -r version sum <<<"$version"
        file=$dir/python$M0_VERSION-$version.tar.xz
        while IFS= read -r mirror; do
            m0_say "fetching the source of CPython $version"
            if "$helper" download-file "${mirror%/}/pool/main/p/python$M0_VERSION/python${M0_VERSION}_$version.orig.tar.xz" \
                "$file" "SHA256:$sum" >&2 9>&- && printf '%s  %s\n' "$sum" "$file" | sha256sum -c --status; then
                M0_SOURCE_VERSION=$version M0_SOURCE_FILE=$file
                return 0
            fi
        done <<<"$mirrors"
    done
    m0_die "the source of CPython $M0_LABEL could not be fetched from the Debian mirror" \
        "tried: $(printf '%s, ' "${M0_SOURCES[@]%% *}" | sed 's/, $//')" \
        "set $M0_OVERRIDE to an interpreter, or install uv"
}

# Builds CPython into the cache. Its name appears there only when all is in place and checked.
m0_build_cpython() {
    local work prefix name=python$M0_VERSION flags=(--enable-shared --with-ensurepip=install) log
    ((M0_FREE_THREADED)) && flags+=(--disable-gil) name+=t
    m0_packages "${M0_BUILD_PACKAGES[@]}"
    # The lock is ours: whatever lies here was left by a run that was interrupted.
    rm -rf -- "$M0_CACHE"/build-"$M0_TAG".*
    work=$(mktemp -d "$M0_CACHE/build-$M0_TAG.XXXXXX")
    # apt drops its privileges for downloads and must be able to look into the folder.
    chmod 755 "$work"
    m0_fetch_source "$work"
    prefix=$(m0_prefix "$M0_SOURCE_VERSION")
    log=$work/build.log
    mkdir "$work/src" "$work/image"
    tar -xf "$M0_SOURCE_FILE" -C "$work/src" --strip-components=1
    m0_say "building CPython $M0_SOURCE_VERSION$( ((M0_FREE_THREADED)) && printf ' free-threaded') into $prefix (some minutes; log: $log)"
    (
        exec 9>&-
        # Settings of the caller's own builds have no business in this one.
        unset MAKEFLAGS MFLAGS MAKELEVEL CFLAGS CPPFLAGS LDFLAGS LIBS CONFIG_SITE PYTHONPATH LD_LIBRARY_PATH LD_RUN_PATH
        cd "$work/src"
        # Its own folder on the rpath: it runs, and m0serve links, without LD_LIBRARY_PATH.
        ./configure --prefix="$prefix" "${flags[@]}" LDFLAGS="-Wl,-rpath,$prefix/lib"
        make -j"$(nproc)"
        make install DESTDIR="$work/image"
    ) >"$log" 2>&1 </dev/null || {
        tail -n 30 "$log" >&2
        m0_die "building CPython $M0_SOURCE_VERSION failed; the whole log: $log"
    }
    rm -rf "$work/image$prefix/lib/python$M0_VERSION${M0_TAG##*[0-9]}/test"
    # Checked before it gets its name: where it stands now it needs to be told its home and its library.
    LD_LIBRARY_PATH=$work/image$prefix/lib "$work/image$prefix/bin/$name" - "$M0_FREE_THREADED" <<'PY' >&2 ||
import sys, sysconfig
import ssl, sqlite3, zlib, ctypes, lzma, bz2, readline, uuid, venv, ensurepip
assert bool(sysconfig.get_config_var("Py_GIL_DISABLED")) == (sys.argv[1] == "1"), "wrong kind of build"
if sys.argv[1] == "1":
    assert not sys._is_gil_enabled(), "the GIL is on"
PY
        m0_die "the CPython just built does not work (see above); the whole log: $log"
    rm -rf -- "$prefix"
    mv -T -- "$work/image$prefix" "$prefix"
    m0_try "$prefix/bin/$name" || m0_die "the CPython just built is not usable (see above); the whole log: $log"
    rm -rf -- "$work"
    m0_say "built $M0_PYTHON"
}

m0_make_interpreter() {
    # Another run may have made it while this one waited for the lock.
    m0_find || m0_uv || m0_build_cpython
}

m0_interpreter() {
    mkdir -p "$M0_CACHE" || m0_die "cannot make the cache folder $M0_CACHE" "set XDG_CACHE_HOME to one that can be written"
    m0_find || m0_locked "python-$M0_LABEL" m0_make_interpreter
}

# Sets M0_VENV; makes it when the interpreter or the requirements are new.
m0_venv() {
    local key
    key=$({ printf '%s\n' "$M0_PYTHON"; "$M0_PYTHON" -I -c 'import sys; print(sys.version)'; cat "${M0_REQUIREMENTS[@]}"; } | sha256sum)
    M0_VENV=$M0_CACHE/venv-$M0_TAG-${key:0:16}
    [[ -e $M0_VENV/.complete ]] || m0_locked "${M0_VENV##*/}" m0_make_venv
}

m0_make_venv() {
    local file arguments=()
    [[ -e $M0_VENV/.complete ]] && return
    m0_say "making the virtual environment $M0_VENV"
    rm -rf -- "$M0_VENV"
    for file in "${M0_REQUIREMENTS[@]}"; do arguments+=(-r "$file"); done
    (
        exec 9>&-
        unset VIRTUAL_ENV PYTHONPATH PIP_TARGET PIP_PREFIX PIP_USER PIP_REQUIRE_VIRTUALENV
        "$M0_PYTHON" -I -m venv "$M0_VENV" &&
            "$M0_VENV/bin/python" -I -m pip install --quiet --disable-pip-version-check --no-input --prefer-binary "${arguments[@]}"
    ) >&2 </dev/null || {
        rm -rf -- "$M0_VENV"
        m0_die "the requirements could not be installed (see above)" "they are listed in ${M0_REQUIREMENTS[*]#"$M0_ROOT/"}"
    }
    : >"$M0_VENV/.complete"
}

# Sets M0_SERVER to m0serve's release build for this interpreter. Cargo knows by itself whether there is anything to do.
m0_server() {
    local verbosity=()
    command -v cargo >/dev/null || m0_die "cargo is missing: m0serve is written in Rust" "install Rust $(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$M0_ROOT/Cargo.toml") or newer with rustup"
    command -v cc >/dev/null || m0_packages build-essential
    M0_SERVER=$M0_ROOT/target/py$M0_TAG/release/m0serve
    [[ -x $M0_SERVER ]] && verbosity=(--quiet) || m0_say "building m0serve for $M0_PYTHON"
    m0_cargo build --release --bin m0serve "${verbosity[@]}" >&2 </dev/null || m0_die "building m0serve failed (see above)"
    [[ -x $M0_SERVER ]] || m0_die "cargo built no $M0_SERVER"
}

# Cargo with this interpreter to link, in the target folder that is this interpreter's own. What the caller's
# environment says about interpreters or targets is left out: it would link another one, or change where the binary is.
m0_cargo() (
    while IFS= read -r name; do unset "$name"; done < <(compgen -e | grep -E '^(PYO3_|M0_)')
    unset VIRTUAL_ENV CONDA_PREFIX PYTHONPATH LD_LIBRARY_PATH CARGO_BUILD_TARGET CARGO_BUILD_TARGET_DIR
    export PYO3_PYTHON=$M0_PYTHON CARGO_TARGET_DIR=$M0_ROOT/target/py$M0_TAG
    cd "$M0_ROOT"
    exec cargo "$@"
)

# The whole of scripts/py314t and scripts/py313.
m0_main() {
    m0_select "$1"
    shift
    m0_interpreter
    m0_venv
    m0_server
    if (($# == 0)); then
        printf 'PYTHON=%s\nVENV=%s\nM0SERVE=%s\n' "$M0_PYTHON" "$M0_VENV" "$M0_SERVER"
        return
    fi
    export VIRTUAL_ENV=$M0_VENV PATH=${M0_SERVER%/*}:$M0_VENV/bin:$PATH
    hash -r
    command -v -- "$1" >/dev/null || { m0_say "error: $1: command not found"; exit 127; }
    exec -- "$@"
}

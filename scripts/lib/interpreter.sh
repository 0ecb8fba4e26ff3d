# What scripts/py314t and scripts/py313 share: finds or builds an interpreter, makes its virtual
# environment, builds m0serve for it. Sourced, never run. Bash 4.4 or newer.
#
# Owns ${XDG_CACHE_HOME:-~/.cache}/m0serve:
#   python-3.14.7t/      a CPython that was built here, complete as soon as its name exists (renamed into place)
#   python-3.14t.found   the path of one that uv installed
#   venv-314t-<key>/     a virtual environment; <key> hashes the interpreter and the requirements;
#                        usable once it holds the file .complete, which is written last
#   build-*/, *.lock     work in progress
# Its variables are lower-case: M0_* in the environment belongs to m0serve's flags and reaches COMMAND untouched.
# Everything for a person goes to stderr: stdout belongs to PYTHON=, VENV=, M0SERVE= and to COMMAND.

m0_root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
# A relative XDG_CACHE_HOME is to be ignored (XDG Base Directory Specification).
case ${XDG_CACHE_HOME-} in
/*) m0_cache=$XDG_CACHE_HOME/m0serve ;;
*) m0_cache=${HOME:?HOME is not set, and neither is XDG_CACHE_HOME}/.cache/m0serve ;;
esac
m0_requirements=("$m0_root/apps/requirements.txt" "$m0_root/tests/requirements.txt")

# Debian's source packages: "VERSION SHA256" of the .orig.tar.xz, the first that the mirror still has is taken.
m0_sources_314=(
    "3.14.7 3b48dac8fb59f62eaa67ac83c1eb12bda1b7a08406dd286e252c11a66be27f81"
    "3.14.6 143b1dddefaec3bd2e21e3b839b34a2b7fb9842272883c576420d605e9f30c63"
    "3.14.5 7e32597b99e5d9a39abed35de4693fa169df3e5850d4c334337ffd6a19a36db6"
)
m0_sources_313=(
    "3.13.5 93e583f243454e6e9e4588ca2c2662206ad961659863277afcdb96801647d640"
)

# What CPython needs to be compiled with every module that apps and tests use.
m0_build_packages=(build-essential pkg-config xz-utils libssl-dev zlib1g-dev libffi-dev libsqlite3-dev
    libbz2-dev liblzma-dev libzstd-dev libreadline-dev libncurses-dev uuid-dev)

# What messages begin with, and m0_cargo's target folder and time limit where they differ from the usual.
m0_name='' m0_target='' m0_limit=''

m0_say() { printf '%s: %s\n' "$m0_name" "$*" >&2; }
m0_die() { printf '%s: error: %s\n' "$m0_name" "$1" >&2; shift; (($# == 0)) || printf '  %s\n' "$@" >&2; exit 1; }

# Which interpreter this run is about: 3.14t or 3.13.
m0_select() {
    case $1 in
    3.14t) m0_version=3.14 m0_free_threaded=1 m0_tag=314t m0_override=M0_PY314T m0_sources=("${m0_sources_314[@]}") ;;
    3.13) m0_version=3.13 m0_free_threaded=0 m0_tag=313 m0_override=M0_PY313 m0_sources=("${m0_sources_313[@]}") ;;
    *) m0_die "no such interpreter: $1 (3.14t and 3.13 are known)" ;;
    esac
    m0_label=$1
    m0_name=${m0_name:-py$m0_tag}
    # Another interpreter's settings would make ours look for its library in the wrong place.
    unset PYTHONHOME PYTHONPLATLIBDIR __PYVENV_LAUNCHER__
}

# Prints the real path of the interpreter behind $1 (out of any virtual environment) when it can be used,
# else the reason on stderr and status 1.
m0_probe() {
    "$1" -I - "$m0_version" "$m0_free_threaded" <<'PY'
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
    if found=$(m0_probe "$1" 2>"$m0_cache/probe.$$"); then
        rm -f "$m0_cache/probe.$$"
        m0_python=$found
        return 0
    fi
    [[ ${2-} == quiet ]] || m0_say "passing over $(tail -n 1 "$m0_cache/probe.$$")"
    rm -f "$m0_cache/probe.$$"
    return 1
}

# Sets m0_python to an interpreter that is already there.
m0_find() {
    local override=${!m0_override-} name=python$m0_version dir version _
    ((m0_free_threaded)) && name+=t
    if [[ -n $override ]]; then
        [[ $override == */* ]] || override=$(command -v -- "$override" || printf '%s' "$override")
        [[ -x $override ]] || m0_die "$m0_override=$override: no such program"
        m0_python=$(m0_probe "$override") || m0_die "$m0_override does not name a usable CPython $m0_label (see above)"
        return
    fi
    while IFS= read -r -d : dir; do
        # pyenv's shims answer only for the version selected in this folder: its versions are looked at below.
        [[ $dir == */shims ]] && continue
        [[ -x $dir/$name ]] && m0_try "$dir/$name" && return
    done <<<"$PATH:"
    while IFS= read -r dir; do
        m0_try "$dir/bin/$name" && return
    done < <(printf '%s\n' "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$m0_version"* | sort -rV)
    if [[ -s $m0_cache/python-$m0_label.found ]]; then
        m0_try "$(<"$m0_cache/python-$m0_label.found")" quiet && return
    fi
    for version in "${m0_sources[@]}"; do
        read -r version _ <<<"$version"
        m0_try "$(m0_prefix "$version")/bin/$name" && return
    done
    return 1
}

m0_prefix() { printf '%s/python-%s%s' "$m0_cache" "$1" "${m0_tag##*[0-9]}"; }

# Runs the rest of its arguments with the named lock held, so that two runs don't make the same thing twice.
m0_locked() {
    local lock=$m0_cache/$1.lock
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
    m0_say "installing CPython $m0_label with uv"
    uv python install "$m0_label" >&2 9>&- || { m0_say "uv could not; going on without it"; return 1; }
    python=$(uv python find --no-project --python-preference only-managed "$m0_label" 9>&-) || return 1
    m0_try "$python" || return 1
    printf '%s\n' "$m0_python" >"$m0_cache/python-$m0_label.found.$$"
    mv -f "$m0_cache/python-$m0_label.found.$$" "$m0_cache/python-$m0_label.found"
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

# Fetches the first source that the mirror still has into $1; sets m0_source_version and m0_source_file.
m0_fetch_source() {
    local dir=$1 helper=/usr/lib/apt/apt-helper mirrors mirror version sum file
    [[ -x $helper ]] || m0_die "no CPython $m0_label here, and no Debian to fetch its source from" \
        "set $m0_override to one (configured with --enable-shared$( ((m0_free_threaded)) && printf ' --disable-gil')), or install uv"
    # In the order of apt's sources, so that the main archive comes before the security one.
    mirrors=$(apt-get indextargets --format '$(REPO_URI)' | awk '!seen[$0]++')
    [[ -n $mirrors ]] || m0_die "apt knows no mirror (apt-get indextargets is empty)"
    for version in "${m0_sources[@]}"; do
        read -r version sum <<<"$version"
        file=$dir/python$m0_version-$version.tar.xz
        while IFS= read -r mirror; do
            m0_say "fetching the source of CPython $version"
            if "$helper" download-file "${mirror%/}/pool/main/p/python$m0_version/python${m0_version}_$version.orig.tar.xz" \
                "$file" "SHA256:$sum" >&2 9>&- && printf '%s  %s\n' "$sum" "$file" | sha256sum -c --status; then
                m0_source_version=$version m0_source_file=$file
                return 0
            fi
        done <<<"$mirrors"
    done
    m0_die "the source of CPython $m0_label could not be fetched from the Debian mirror" \
        "tried: $(printf '%s, ' "${m0_sources[@]%% *}" | sed 's/, $//')" \
        "set $m0_override to an interpreter, or install uv"
}

# Builds CPython into the cache. Its name appears there only when all is in place and checked.
m0_build_cpython() {
    local work prefix name=python$m0_version flags=(--enable-shared --with-ensurepip=install) log
    ((m0_free_threaded)) && flags+=(--disable-gil) name+=t
    m0_packages "${m0_build_packages[@]}"
    # The lock is ours: whatever lies here was left by a run that was interrupted.
    rm -rf -- "$m0_cache"/build-"$m0_tag".*
    work=$(mktemp -d "$m0_cache/build-$m0_tag.XXXXXX")
    m0_fetch_source "$work"
    prefix=$(m0_prefix "$m0_source_version")
    log=$work/build.log
    mkdir "$work/src" "$work/image"
    tar -xf "$m0_source_file" -C "$work/src" --strip-components=1 || m0_die "cannot unpack $m0_source_file"
    m0_say "building CPython $m0_source_version$( ((m0_free_threaded)) && printf ' free-threaded') into $prefix (some minutes; log: $log)"
    (
        exec 9>&-
        # Settings of the caller's own builds have no business in this one.
        unset MAKEFLAGS MFLAGS MAKELEVEL CFLAGS CPPFLAGS LDFLAGS LIBS CONFIG_SITE PYTHONPATH LD_LIBRARY_PATH LD_RUN_PATH
        # Its own folder on the rpath: it runs, and m0serve links, without LD_LIBRARY_PATH.
        cd "$work/src" &&
            ./configure --prefix="$prefix" "${flags[@]}" LDFLAGS="-Wl,-rpath,$prefix/lib" &&
            make -j"$(nproc)" &&
            make install DESTDIR="$work/image"
    ) >"$log" 2>&1 </dev/null || {
        tail -n 30 "$log" >&2
        m0_die "building CPython $m0_source_version failed; the whole log: $log"
    }
    rm -rf "$work/image$prefix/lib/python$m0_version${m0_tag##*[0-9]}/test"
    # Checked before it gets its name; where it lies now, its library is not yet where the rpath says.
    LD_LIBRARY_PATH=$work/image$prefix/lib "$work/image$prefix/bin/$name" - "$m0_free_threaded" <<'PY' >&2 ||
import sys, sysconfig
import ssl, sqlite3, zlib, ctypes, lzma, bz2, readline, uuid, venv, ensurepip
assert bool(sysconfig.get_config_var("Py_GIL_DISABLED")) == (sys.argv[1] == "1"), "wrong kind of build"
if sys.argv[1] == "1":
    assert not sys._is_gil_enabled(), "the GIL is on"
PY
        m0_die "the CPython just built does not work (see above); the whole log: $log"
    rm -rf -- "$prefix"
    mv -T -- "$work/image$prefix" "$prefix" || m0_die "cannot move the CPython just built to $prefix"
    m0_try "$prefix/bin/$name" || m0_die "the CPython just built is not usable (see above); the whole log: $log"
    rm -rf -- "$work"
    m0_say "built $m0_python"
}

m0_make_interpreter() {
    # Another run may have made it while this one waited for the lock.
    m0_find || m0_uv || m0_build_cpython
}

m0_interpreter() {
    mkdir -p "$m0_cache" || m0_die "cannot make the cache folder $m0_cache" "set XDG_CACHE_HOME to one that can be written"
    m0_find || m0_locked "python-$m0_label" m0_make_interpreter
}

# Sets m0_venv; makes it when the interpreter or the requirements are new.
m0_venv() {
    local key
    key=$({ printf '%s\n' "$m0_python"; "$m0_python" -I -c 'import sys; print(sys.version)'; cat "${m0_requirements[@]}"; } | sha256sum)
    m0_venv=$m0_cache/venv-$m0_tag-${key:0:16}
    [[ -e $m0_venv/.complete ]] || m0_locked "${m0_venv##*/}" m0_make_venv
}

m0_make_venv() {
    local file arguments=()
    [[ -e $m0_venv/.complete ]] && return
    m0_say "making the virtual environment $m0_venv"
    rm -rf -- "$m0_venv"
    for file in "${m0_requirements[@]}"; do arguments+=(-r "$file"); done
    (
        exec 9>&-
        unset VIRTUAL_ENV PYTHONPATH PIP_TARGET PIP_PREFIX PIP_USER PIP_REQUIRE_VIRTUALENV
        "$m0_python" -I -m venv "$m0_venv" &&
            "$m0_venv/bin/python" -I -m pip install --quiet --disable-pip-version-check --no-input --prefer-binary "${arguments[@]}"
    ) >&2 </dev/null || {
        rm -rf -- "$m0_venv"
        m0_die "the requirements could not be installed (see above)" "they are listed in ${m0_requirements[*]#"$m0_root/"}"
    }
    : >"$m0_venv/.complete"
}

# Sets m0_server to m0serve's release build for this interpreter. Cargo knows by itself whether there is anything to do.
m0_server() {
    command -v cargo >/dev/null || m0_die "cargo is missing: m0serve is written in Rust" "install Rust $(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$m0_root/Cargo.toml") or newer with rustup"
    command -v cc >/dev/null || m0_packages build-essential
    m0_server=$m0_root/target/py$m0_tag/release/m0serve
    m0_cargo build --release --bin m0serve >&2 </dev/null || m0_die "building m0serve failed (see above)"
    [[ -x $m0_server ]] || m0_die "cargo built no $m0_server"
}

# Cargo with this interpreter to link, in the target folder that is this interpreter's own. What the caller's
# environment says about interpreters or targets is left out: it would link another one, or change where the binary is.
# m0_target and m0_limit change the target folder and limit the time, for ci/test.
m0_cargo() (
    while IFS= read -r name; do unset "$name"; done < <(compgen -e | grep -E '^(PYO3_|M0_)')
    unset VIRTUAL_ENV CONDA_PREFIX PYTHONPATH CARGO_BUILD_TARGET CARGO_BUILD_TARGET_DIR
    [[ -z ${m0_python-} ]] || export PYO3_PYTHON=$m0_python
    export CARGO_TARGET_DIR=${m0_target:-$m0_root/target/py$m0_tag}
    cd "$m0_root" || exit
    exec ${m0_limit:+timeout --foreground "$m0_limit"} cargo "$@"
)

# The whole of scripts/py314t and scripts/py313.
m0_main() {
    m0_select "$1"
    shift
    m0_interpreter
    m0_venv
    m0_server
    if (($# == 0)); then
        printf 'PYTHON=%s\nVENV=%s\nM0SERVE=%s\n' "$m0_python" "$m0_venv" "$m0_server"
        return
    fi
    export VIRTUAL_ENV=$m0_venv PATH=${m0_server%/*}:$m0_venv/bin:$PATH
    hash -r
    command -v -- "$1" >/dev/null || { m0_say "error: $1: command not found"; exit 127; }
    exec -- "$@"
}

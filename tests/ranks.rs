//! Holds the code to the table of ranks in src/lib.rs: a module imports lower ranks only, and within a rank never in a
//! circle; the protocol core touches neither sockets nor the clock; only python/ calls CPython.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn source_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Module → rank, from the table in the crate's documentation.
fn ranks() -> BTreeMap<String, u32> {
    let text = fs::read_to_string(source_root().join("lib.rs")).unwrap();
    let mut ranks = BTreeMap::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let ["//!", rank, modules, ..] = cells[..]
            && let Ok(rank) = rank.parse()
        {
            for module in modules.split(',') {
                assert_eq!(
                    ranks.insert(module.trim().to_owned(), rank),
                    None,
                    "{module} has two ranks"
                );
            }
        }
    }
    assert!(ranks.len() > 10, "the table in src/lib.rs was not found");
    ranks
}

fn files_below(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// A source file: the modules it is in (`["net", "listener"]`), and its code.
struct Source {
    path: String,
    modules: Vec<String>,
    code: Vec<String>,
}

fn sources() -> Vec<Source> {
    let root = source_root();
    let mut files = Vec::new();
    files_below(&root, &mut files);
    files.sort();
    let sources = files.into_iter().filter_map(|file| {
        let relative = file.strip_prefix(&root).unwrap().with_extension("");
        let mut modules: Vec<String> = relative
            .iter()
            .map(|part| part.to_string_lossy().into_owned())
            .collect();
        if modules.last().is_some_and(|last| last == "mod") {
            modules.pop();
        }
        let path = format!("src/{}", file.strip_prefix(&root).unwrap().display());
        let is_root = ["main", "lib"].contains(&modules[0].as_str());
        (!is_root).then(|| Source {
            path,
            modules,
            code: tokens(&fs::read_to_string(&file).unwrap()),
        })
    });
    sources.collect()
}

/// The tokens of Rust code: words, and single signs (but `::`). Comments are left out; a string is one token.
fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let mut tokens = Vec::new();
    let mut index = 0;
    while index < chars.len() {
        let start = index;
        match at(index) {
            '/' if at(index + 1) == '/' => {
                while index < chars.len() && at(index) != '\n' {
                    index += 1;
                }
                continue;
            }
            '/' if at(index + 1) == '*' => {
                let mut depth = 0;
                loop {
                    match (at(index), at(index + 1)) {
                        ('/', '*') => (depth, index) = (depth + 1, index + 2),
                        ('*', '/') => (depth, index) = (depth - 1, index + 2),
                        _ => index += 1,
                    }
                    if depth == 0 || index >= chars.len() {
                        break;
                    }
                }
                continue;
            }
            '"' => {
                index += 1;
                while index < chars.len() && at(index) != '"' {
                    index += if at(index) == '\\' { 2 } else { 1 };
                }
                index += 1;
            }
            'r' if at(index + 1) == '"'
                || (at(index + 1) == '#' && ['"', '#'].contains(&at(index + 2))) =>
            {
                let hashes = (index + 1..).take_while(|&hash| at(hash) == '#').count();
                index += 2 + hashes;
                let closes = |index: usize| {
                    at(index) == '"' && (1..=hashes).all(|hash| at(index + hash) == '#')
                };
                while index < chars.len() && !closes(index) {
                    index += 1;
                }
                index += 1 + hashes;
            }
            // A character; otherwise a lifetime, whose quote is a sign.
            '\'' if at(index + 1) == '\\' || at(index + 2) == '\'' => {
                index += if at(index + 1) == '\\' { 3 } else { 2 };
                while index < chars.len() && at(index) != '\'' {
                    index += 1;
                }
                index += 1;
            }
            c if c.is_alphanumeric() || c == '_' => {
                while at(index).is_alphanumeric() || at(index) == '_' {
                    index += 1;
                }
            }
            ':' if at(index + 1) == ':' => index += 2,
            c => {
                index += 1;
                if c.is_whitespace() {
                    continue;
                }
            }
        }
        tokens.push(chars[start..index.min(chars.len())].iter().collect());
    }
    tokens
}

/// The crate's modules that the code names: by `crate::`, or by `super::` as far up as the root.
fn named(source: &Source) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    let code: Vec<&str> = source.code.iter().map(String::as_str).collect();
    let mut index = 0;
    // How many inline modules the code is in.
    let (mut depth, mut inline) = (0usize, Vec::new());
    while index < code.len() {
        match code[index] {
            "mod" if code.get(index + 2) == Some(&"{") => {
                inline.push(depth);
                depth += 1;
                index += 3;
                continue;
            }
            "{" => depth += 1,
            "}" => {
                depth = depth.saturating_sub(1);
                if inline.last() == Some(&depth) {
                    inline.pop();
                }
            }
            start @ ("crate" | "super") if code.get(index + 1) == Some(&"::") => {
                let mut up = usize::from(start == "super");
                index += 2;
                while code.get(index) == Some(&"super") && code.get(index + 1) == Some(&"::") {
                    up += 1;
                    index += 2;
                }
                if start == "crate" || up >= source.modules.len() + inline.len() {
                    first_segments(&code[index..], &mut named);
                }
                continue;
            }
            _ => {}
        }
        index += 1;
    }
    named
}

/// Of `a::b` and of `{a::b, c::{d, e}}` the first names: a; a and c.
fn first_segments(code: &[&str], named: &mut BTreeSet<String>) {
    if code.first() != Some(&"{") {
        named.extend(code.first().map(|name| (*name).to_owned()));
        return;
    }
    let mut depth = 0;
    for pair in code.windows(2) {
        match pair[0] {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return;
        }
        if depth == 1 && ["{", ","].contains(&pair[0]) && pair[1] != "}" {
            named.insert(pair[1].to_owned());
        }
    }
}

#[test]
fn a_module_imports_lower_ranks_only() {
    let ranks = ranks();
    let mut faults = Vec::new();
    // Module → modules of its own rank that it imports.
    let mut beside: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let sources = sources();
    assert!(sources.len() > 20);
    for source in &sources {
        let module = &source.modules[0];
        let Some(rank) = ranks.get(module) else {
            faults.push(format!(
                "{}: {module} has no rank in the table of src/lib.rs",
                source.path
            ));
            continue;
        };
        for other in named(source) {
            match ranks.get(&other) {
                _ if other == *module => {}
                Some(theirs) if theirs < rank => {}
                Some(theirs) if theirs == rank => {
                    beside.entry(module.clone()).or_default().insert(other);
                }
                Some(theirs) => {
                    faults.push(format!(
                        "{}: {module} (rank {rank}) imports {other} (rank {theirs})",
                        source.path
                    ));
                }
                // A macro or another item of the crate's root.
                None => {}
            }
        }
    }
    for module in beside.keys() {
        let mut reached = BTreeSet::new();
        let mut next = vec![module];
        while let Some(at) = next.pop() {
            for other in beside.get(at).into_iter().flatten() {
                if reached.insert(other) {
                    next.push(other);
                }
            }
        }
        if reached.contains(module) {
            faults.push(format!(
                "{module} and others of its rank import each other in a circle"
            ));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_protocol_core_is_pure_and_only_python_calls_cpython() {
    let mut faults = Vec::new();
    for source in sources() {
        let code = source.code.join(" ");
        let mut forbid = |what: &[&str]| {
            for name in what.iter().filter(|name| code.contains(**name)) {
                faults.push(format!("{}: {name}", source.path));
            }
        };
        if ["http1", "websocket"].contains(&source.modules[0].as_str()) {
            forbid(&[
                "std :: net",
                "std :: time",
                "std :: fs",
                "std :: os",
                "rustix",
                "socket2",
                "mio",
            ]);
            forbid(&["Instant", "SystemTime", "unsafe {"]);
        }
        if source.modules[0] != "python" {
            forbid(&["pyo3_ffi", "Py_Initialize"]);
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_file_says_what_it_is() {
    let mut files = Vec::new();
    files_below(&source_root(), &mut files);
    let silent: Vec<_> = files
        .iter()
        .filter(|file| !fs::read_to_string(file).unwrap().starts_with("//!"))
        .collect();
    assert!(
        silent.is_empty(),
        "these files don't begin with //! and what they own: {silent:?}"
    );
}

/// The reader of code sees what it must see.
#[test]
fn imports_are_found_however_they_are_written() {
    let found = |modules: &[&str], code: &str| {
        let modules = modules.iter().map(|part| (*part).to_owned()).collect();
        let source = Source {
            path: String::new(),
            modules,
            code: tokens(code),
        };
        named(&source).into_iter().collect::<Vec<_>>().join(" ")
    };
    for (code, expected) in [
        ("use crate::net::Stream;", "net"),
        (
            "use crate::{net::{self, Stream}, pool, http1::{Head, Version}};",
            "http1 net pool",
        ),
        (
            "pub(crate) use crate::a; fn f() { crate::observe::log::warn!(\"x\"); }",
            "a observe",
        ),
        ("use super::pool;", "pool"),
        ("macro_rules! m { () => { $crate::net::f() } }", "net"),
        (
            "// use crate::net;\n/* crate::net /* crate::a */ crate::b */ /// crate::net\nfn f() {}",
            "",
        ),
        (
            "const A: &str = \"crate::net \\\" crate::a\"; const B: &str = r#\"crate::net \" crate::a\"#;",
            "",
        ),
        (
            "const A: char = '\"'; use crate::net; const B: char = '\\''; fn f<'a>(x: &'a u8) { crate::pool::f() }",
            "net pool",
        ),
        (
            "mod tests { use super::*; use super::super::pool; fn f() { {} } } use super::net;",
            "net pool",
        ),
        ("mod tests { use super::Mine; }", ""),
    ] {
        assert_eq!(found(&["top"], code), expected.replace('*', ""), "{code}");
    }
    assert_eq!(
        found(
            &["top", "below"],
            "use super::mine; use super::super::pool; use crate::net;"
        ),
        "net pool"
    );
}

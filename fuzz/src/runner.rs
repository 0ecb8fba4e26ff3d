//! Feeds a target on a stable toolchain: mutates a seed corpus with a seeded generator.
//!
//! Owns: the command line, the mutations, saving a finding. Must not: know what a target checks.
//! One thread.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Words that the grammar turns on. A mutation that writes one of them gets further than a random byte.
const WORDS: &[&[u8]] = &[
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b": ",
    b";",
    b"=",
    b"\"",
    b"\\",
    b",",
    b"?",
    b"#",
    b"*",
    b"@",
    b"%2F",
    b"[::1]",
    b"0\r\n\r\n",
    b"0\r\n",
    b"5\r\nhello\r\n",
    b"1;a=\"b\"\r\nx\r\n",
    b"ffffffffffffffff",
    b"10000000000000000",
    b"18446744073709551615",
    b"GET ",
    b"POST ",
    b"HEAD ",
    b"OPTIONS * ",
    b"CONNECT ",
    b"/ HTTP/1.1\r\n",
    b"HTTP/1.0",
    b"HTTP/2.0",
    b"http://",
    b"Host: a\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"chunked",
    b"gzip, ",
    b"Connection: close\r\n",
    b"Connection: keep-alive, Upgrade\r\n",
    b"Upgrade: websocket\r\n",
    b"Expect: 100-continue\r\n",
    b"X: y\r\n",
    b" folded\r\n",
    b"hello",
];

/// Longer inputs say nothing that shorter ones don't, and are slower.
const LONGEST: usize = 4096;

/// SplitMix64 (Steele, Lea, Flood 2014): small, seeded, good enough to choose mutations.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`, which is not 0.
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let (a, b) = (self.below(length + 1), self.below(length + 1));
        a.min(b)..a.max(b)
    }
}

fn mutated(random: &mut Random, pool: &[Vec<u8>]) -> Vec<u8> {
    let mut input = pool[random.below(pool.len())].clone();
    for _ in 0..1 + random.below(4) {
        let at = random.below(input.len() + 1);
        match random.below(9) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = random.next() as u8,
            2 => input.insert(at, random.next() as u8),
            3 if at < input.len() => _ = input.remove(at),
            4 => {
                let range = random.range(input.len());
                let short = range.start..range.end.min(range.start + 1 + random.below(16));
                input.drain(short.start..short.end.max(short.start).min(input.len()));
            }
            5 => {
                let range = random.range(input.len());
                let copy = input[range].to_vec();
                input.splice(at..at, copy);
            }
            6 => {
                let other = &pool[random.below(pool.len())];
                let piece = other[random.range(other.len())].to_vec();
                input.splice(at.., piece);
            }
            7 => {
                let word = WORDS[random.below(WORDS.len())];
                let end = input.len().min(at + word.len());
                input.splice(at..end, word.iter().copied());
            }
            _ => {
                let word = WORDS[random.below(WORDS.len())];
                input.splice(at..at, word.iter().copied());
            }
        }
    }
    input.truncate(LONGEST);
    input
}

fn directory() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The seed files of a target, in the order of their names.
pub fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = directory().join("corpus").join(target);
    let entries =
        std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a readable folder").path())
        .collect();
    files.sort();
    let read = |path: PathBuf| {
        let input = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        (path, input)
    };
    files.into_iter().map(read).collect()
}

struct Options {
    seconds: u64,
    seed: u64,
    files: Vec<PathBuf>,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        seconds: 30,
        seed: 1,
        files: Vec::new(),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || {
            let value = words.next().ok_or(format!("{word} wants a number"))?;
            value
                .parse::<u64>()
                .map_err(|e| format!("{word} {value}: {e}"))
        };
        match word.as_str() {
            "--seconds" => options.seconds = number()?,
            "--seed" => options.seed = number()?,
            flag if flag.starts_with('-') => return Err(format!("unknown option {flag}")),
            file => options.files.push(file.into()),
        }
    }
    Ok(options)
}

/// The program of a target: 0 if all held, 1 on a finding, 2 on wrong usage.
pub fn run(name: &str, target: fn(&[u8]) -> u64) -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}\nusage: {name} [--seconds N] [--seed N] [FILE…]");
            return ExitCode::from(2);
        }
    };
    if !options.files.is_empty() {
        for path in &options.files {
            match std::fs::read(path) {
                Ok(input) => println!("{}: behaviour {:016x}", path.display(), target(&input)),
                Err(error) => {
                    eprintln!("{}: {error}", path.display());
                    return ExitCode::from(2);
                }
            }
        }
        return ExitCode::SUCCESS;
    }

    let mut random = Random(options.seed);
    let (mut pool, mut known, mut executions) = (Vec::new(), HashSet::new(), 0u64);
    let mut execute = |input: Vec<u8>, pool: &mut Vec<Vec<u8>>, keep: bool| match catch_unwind(
        AssertUnwindSafe(|| target(&input)),
    ) {
        Ok(behaviour) => {
            if known.insert(behaviour) || keep {
                pool.push(input);
            }
            None
        }
        Err(_) => Some(input),
    };
    for (_, input) in corpus(name) {
        executions += 1;
        if let Some(input) = execute(input, &mut pool, true) {
            return finding(name, &input, executions, options.seed);
        }
    }
    let seeds = pool.len();
    let end = Instant::now() + Duration::from_secs(options.seconds);
    while Instant::now() < end {
        for _ in 0..64 {
            executions += 1;
            let input = mutated(&mut random, &pool);
            if let Some(input) = execute(input, &mut pool, false) {
                return finding(name, &input, executions, options.seed);
            }
        }
    }
    println!(
        "{name}: {executions} executions in {} s, seed {}, {seeds} seeds, {} kept: all held",
        options.seconds,
        options.seed,
        pool.len() - seeds
    );
    ExitCode::SUCCESS
}

fn finding(name: &str, input: &[u8], executions: u64, seed: u64) -> ExitCode {
    let hash = input.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let folder = directory().join("artifacts").join(name);
    let path = folder.join(format!("finding-{hash:016x}"));
    let saved = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, input));
    eprintln!(
        "{name}: a finding after {executions} executions, seed {seed}: {}",
        input.escape_ascii()
    );
    match saved {
        Ok(()) => eprintln!("saved as {}", path.display()),
        Err(error) => eprintln!("{}: {error}", path.display()),
    }
    ExitCode::FAILURE
}

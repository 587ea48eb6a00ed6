//! Runs one decoder over its corpus and over mutations of it.

use std::fs::OpenOptions;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::decoders::Decoder;
use crate::{allocation, corpus, mutator};

/// Mutated inputs per decoder, unless the environment says otherwise.
const ITERATIONS: usize = 500_000;
/// As many times more in a long run.
const LONG: usize = 20;
/// Seed of every run: what it finds is kept as a file, not as a number.
const SEED: u64 = 1;

/// Runs `decoder` and tells how many cases it saw.
pub fn run(decoder: &Decoder) {
    let root = corpus::root();
    if std::env::var_os("HULSE_FUZZ_WRITE_SEEDS").is_some() {
        for (name, bytes) in (decoder.seeds)() {
            corpus::keep(&root, decoder.name, &format!("seed-{name}"), &bytes);
        }
    }
    let Cases { seen, accepted } = run_in(&root, decoder, iterations());
    let line = format!("fuzz {}: {seen} cases", decoder.name);
    // Not `println`, which a passing test keeps to itself.
    std::io::stdout()
        .write_all(format!("{line}, {accepted} accepted\n").as_bytes())
        .expect("standard output is open");
    if let Some(path) = std::env::var_os("HULSE_TEST_REPORT") {
        let report = OpenOptions::new().create(true).append(true).open(path);
        // One write, so that tests that run at the same time do not mix their lines.
        report
            .and_then(|mut report| report.write_all(format!("{line}\n").as_bytes()))
            .expect("HULSE_TEST_REPORT names a file that can be written");
    }
}

fn iterations() -> usize {
    if let Ok(text) = std::env::var("HULSE_FUZZ_ITERATIONS") {
        return text.parse().expect("HULSE_FUZZ_ITERATIONS is a number");
    }
    let long = std::env::var("HULSE_LONG").is_ok_and(|value| value == "1");
    ITERATIONS * if long { LONG } else { 1 }
}

/// How many inputs a run saw, and how many of them decoded: a mutator that is never accepted tests the first check only.
#[derive(Debug)]
struct Cases {
    seen: usize,
    accepted: usize,
}

fn run_in(root: &Path, decoder: &Decoder, iterations: usize) -> Cases {
    let kept = corpus::load(root, decoder.name);
    assert!(!kept.is_empty(), "no corpus for {}", decoder.name);
    let mut count = 0;
    for input in &kept {
        let accepted = try_one(root, decoder, &input.bytes);
        assert!(
            accepted || !input.is_valid(),
            "{} refuses its own {}; if the format changed, write the seeds anew",
            decoder.name,
            input.name
        );
        count += usize::from(accepted);
    }
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    for _ in 0..iterations {
        let [one, other] = [(); 2].map(|()| &kept[rng.random_range(0..kept.len())].bytes);
        let mut input = one.clone();
        mutator::damage(&mut input, other, &mut rng);
        // Most damage stops at a checksum; where that is made right again the parser behind it is reached.
        if rng.random_ratio(3, 4) {
            (decoder.repair)(&mut input);
        }
        count += usize::from(try_one(root, decoder, &input));
    }
    Cases {
        seen: kept.len() + iterations,
        accepted: count,
    }
}

/// Decodes one input; true when it was accepted. A failure is kept in the corpus.
fn try_one(root: &Path, decoder: &Decoder, input: &[u8]) -> bool {
    let run = || catch_unwind(AssertUnwindSafe(|| (decoder.accepts)(input)));
    let (answer, peak) = allocation::peak_bytes(run);
    let failure = match answer {
        Err(_) => "panics".to_owned(),
        Ok(_) if peak > allocation::BYTES_MAX + 4 * input.len() => {
            format!("holds {peak} bytes for an input of {}", input.len())
        }
        Ok(accepted) => return accepted,
    };
    let file = corpus::keep_failed(root, decoder.name, input);
    panic!("{} {failure}: {}", decoder.name, file.display());
}

#[test]
fn failing_input_is_kept_and_named() {
    let root = std::env::temp_dir().join(format!("hulse-fuzz-{}", std::process::id()));
    for (name, accepts) in [
        (
            "panicking",
            (|input| input[0] != b'x' || panic!("x")) as fn(&[u8]) -> bool,
        ),
        ("greedy", |input| {
            vec![0_u8; if input[0] == b'x' { 65 << 20 } else { 1 }].len() > 1
        }),
    ] {
        let decoder = Decoder {
            name,
            accepts,
            repair: |_| (),
            seeds: Vec::new,
        };
        corpus::keep(&root, name, "failed-before", b"xyz");
        let refusal = catch_unwind(|| run_in(&root, &decoder, 1)).unwrap_err();
        let words = refusal.downcast_ref::<String>().unwrap();
        let kept = corpus::load(&root, name);
        assert_eq!(kept.len(), 2);
        assert!(
            words.contains(&kept[0].name) && words.contains(name),
            "{words}"
        );
        assert_eq!(kept[0].bytes, b"xyz");
    }
    std::fs::remove_dir_all(root).unwrap();
}

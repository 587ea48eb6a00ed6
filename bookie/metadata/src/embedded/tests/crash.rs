//! Crash point 31 (storage.md §10): the machine stops at each write, length change and sync of redb, and any part of what was
//! not synced is lost or torn.

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::disk::{Disk, Trouble};
use super::workload::{Facts, formatted, open, run, shown};

/// Random losses tried per crash, besides "all" and "nothing".
const LOSSES: usize = 3;

/// Opens what is left and checks it; sometimes the machine stops again while it opens.
async fn check(image: Vec<u8>, allowed: &[Facts], rng: &mut StdRng, point: u64) {
    let disk = Disk::with(image);
    disk.plan(point % 12, Trouble::Crash);
    // Opened or not, and boot counted or not: what is left of it must open below and show the same facts.
    drop(open(&disk));
    let again = Disk::with(disk.survivors(rng));
    let store = open(&again).unwrap_or_else(|error| panic!("crash at {point}: {error}"));
    let found = shown(&store).await.unwrap();
    assert!(
        allowed.contains(&found),
        "crash at {point}: found revision {}, {} rows; allowed {:?}",
        found.revision.0,
        found.rows.len(),
        allowed.iter().map(|f| f.revision.0).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn crash_at_each_write_and_sync_keeps_every_answered_transaction() {
    let image = formatted();
    let mut hits = 0u64;
    let mut unknown = 0u64;
    for point in 0.. {
        let mut rng = StdRng::seed_from_u64(point);
        let disk = Disk::with(image.clone());
        disk.plan(point, Trouble::Crash);
        let (answered, caught) = match open(&disk) {
            Ok(store) => {
                let ran = run(&store, || false).await;
                (ran.answered, ran.caught)
            }
            // The crash came while it opened: nothing was answered.
            Err(_) => (Facts::default(), None),
        };
        if disk.struck().is_none() {
            break;
        }
        hits += 1;
        let mut allowed = vec![answered.after_boot()];
        if let Some(txn) = caught {
            unknown += 1;
            let mut with = answered;
            with.apply(&txn);
            allowed.push(with.after_boot());
        }
        for image in [disk.synced(), disk.everything()] {
            check(image, &allowed, &mut rng, point).await;
        }
        for _ in 0..LOSSES {
            let image = disk.survivors(&mut rng);
            check(image, &allowed, &mut rng, point).await;
        }
    }
    report(&format!("crash point 31: {hits} hits"));
    assert!(
        hits > 100 && unknown > 100,
        "{hits} hits, {unknown} unknown"
    );
}

/// Adds a line to what `tests/run` sums up.
fn report(line: &str) {
    println!("{line}");
    if let Some(path) = std::env::var_os("HULSE_TEST_REPORT") {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path);
        file.and_then(|mut file| {
            std::io::Write::write_all(&mut file, format!("{line}\n").as_bytes())
        })
        .expect("the report file can be written");
    }
}

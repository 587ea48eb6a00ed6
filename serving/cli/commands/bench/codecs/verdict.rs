//! Which resource limits, and which codec to take: a rule over figures, without I/O.
//!
//! Rates of several rounds are compared by their medians. Two rates are the same when they differ by less than the rounds of either
//! scatter, and never by less than [`NOISE_MIN`]: what is within that is no reason to take anything.
//!
//! 1. A codec is limited by the client when building its batches takes nearly all of the time.
//! 2. If some codec that is not faster to build lets more records through than none does, then bytes were the limit of none: the network
//!    or the disk, or the server's work per byte.
//! 3. If none is as fast as any codec that the client can keep up with, bytes are not the limit: the server's work per batch is, or the
//!    wait for its answers.
//! 4. Advice: the fastest codec if it is faster than none; of equally fast ones the one that stores least. If nothing is faster, the one
//!    that stores least among those that cost no rate. Records that hardly shrink: none.

/// Two rates that differ by less are the same.
const NOISE_MIN: f64 = 0.05;
/// A builder that is busy for this share of the time limits.
const BUSY_MIN: f64 = 0.8;
/// A ratio below is not worth any work.
const RATIO_MIN: f64 = 1.1;

/// Figures of one codec.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Figures {
    /// Its name.
    pub(super) codec: &'static str,
    /// The SDK and `hulse produce` can send it.
    pub(super) ours: bool,
    /// Keys and values per byte of a batch.
    pub(super) ratio: f64,
    /// Records per second of each round; never empty.
    pub(super) rates: Vec<f64>,
    /// Share of time in which the client built batches.
    pub(super) busy: f64,
}

/// What limits the run without compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// The client's processor.
    Client,
    /// Bytes: the network, the disk, or the server's work per byte.
    Bytes,
    /// The server's work per batch, or the wait for its answers.
    Batches,
    /// It cannot be told: the rounds scatter too much, or every codec keeps the client busy.
    Unknown,
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Verdict {
    pub(super) limit: Limit,
    /// Name of a codec, or none.
    pub(super) take: &'static str,
    /// Why.
    pub(super) why: String,
}

impl Figures {
    /// The middle round.
    pub(super) fn rate(&self) -> f64 {
        let mut rates = self.rates.clone();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied().unwrap_or(0.0)
    }

    /// Half of the way from the slowest to the fastest round, as a share of the middle one.
    pub(super) fn scatter(&self) -> f64 {
        let fastest = self.rates.iter().copied().fold(0.0, f64::max);
        let slowest = self.rates.iter().copied().fold(f64::INFINITY, f64::min);
        (fastest - slowest) / 2.0 / self.rate().max(1e-9)
    }

    /// How far rates must differ to be different.
    fn noise(&self, other: &Self) -> f64 {
        self.scatter().max(other.scatter()).max(NOISE_MIN)
    }

    fn is_faster_than(&self, other: &Self) -> bool {
        self.rate() > other.rate() * (1.0 + self.noise(other))
    }

    /// Why its rate and another one are the same, where the table shows two numbers.
    fn alike(&self, other: &Self) -> String {
        let apart = 100.0 * (self.rate() / other.rate().max(1e-9) - 1.0).abs();
        if apart < 1.0 {
            return String::new();
        }
        let noise = 100.0 * self.noise(other);
        format!(" ({apart:.0} % apart; less than {noise:.0} % is noise here)")
    }

    fn is_busy(&self) -> bool {
        self.busy >= BUSY_MIN
    }
}

/// Judges. The first of `all` is none.
pub(super) fn judge(all: &[Figures]) -> Option<Verdict> {
    let (none, codecs) = all.split_first()?;
    let limit = limit(none, codecs);
    let (take, why) = advice(none, codecs);
    Some(Verdict { limit, take, why })
}

fn limit(none: &Figures, codecs: &[Figures]) -> Limit {
    if none.is_busy() {
        return Limit::Client;
    }
    let shrinking = || codecs.iter().filter(|codec| codec.ratio >= RATIO_MIN);
    if shrinking().any(|codec| codec.is_faster_than(none)) {
        return Limit::Bytes;
    }
    // Fewer bytes and no more records, though the client had time: bytes it was not.
    match shrinking().any(|codec| !codec.is_busy() && !none.is_faster_than(codec)) {
        true => Limit::Batches,
        false => Limit::Unknown,
    }
}

fn advice(none: &Figures, codecs: &[Figures]) -> (&'static str, String) {
    let usable: Vec<&Figures> = codecs.iter().filter(|codec| codec.ours).collect();
    let most = usable.iter().map(|codec| codec.ratio).fold(0.0, f64::max);
    if most < RATIO_MIN {
        return (
            "none",
            format!(
                "the records hardly shrink ({most:.2} at most), so the work would be for nothing"
            ),
        );
    }
    let fastest = usable
        .iter()
        .filter(|codec| codec.is_faster_than(none))
        .max_by(|a, b| a.rate().total_cmp(&b.rate()));
    if let Some(fastest) = fastest {
        let alike = usable
            .iter()
            .filter(|codec| codec.is_faster_than(none) && !fastest.is_faster_than(codec));
        let best = alike
            .max_by(|a, b| a.ratio.total_cmp(&b.ratio))
            .unwrap_or(fastest);
        let times = best.rate() / none.rate().max(1e-9);
        let mut why = format!(
            "{times:.1} times the records per second of none, in {:.0} % of the bytes",
            100.0 / best.ratio
        );
        if best.codec != fastest.codec {
            let noise = best.alike(fastest);
            why.push_str(&format!(", and as fast as {}{noise}", fastest.codec));
        }
        return (best.codec, why);
    }
    let free = usable
        .iter()
        .filter(|codec| codec.ratio >= RATIO_MIN && !none.is_faster_than(codec))
        .max_by(|a, b| a.ratio.total_cmp(&b.ratio));
    match free {
        Some(codec) => (
            codec.codec,
            format!(
                "{} is as fast as none here{} and stores {:.0} % of the bytes",
                codec.codec,
                codec.alike(none),
                100.0 / codec.ratio
            ),
        ),
        None => {
            let small = usable.iter().max_by(|a, b| a.ratio.total_cmp(&b.ratio));
            let trade = small.map_or_else(String::new, |codec| {
                format!(
                    "; {} would store {:.0} % of the bytes at {:.0} % of the rate",
                    codec.codec,
                    100.0 / codec.ratio,
                    100.0 * codec.rate() / none.rate().max(1e-9)
                )
            });
            (
                "none",
                format!("every codec costs records per second{trade}"),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(codec: &'static str, ratio: f64, rate: f64, busy: f64) -> Figures {
        Figures {
            codec,
            ours: !matches!(codec, "gzip" | "snappy"),
            ratio,
            rates: vec![rate * 0.99, rate, rate * 1.01],
            busy,
        }
    }

    fn judged(all: &[Figures]) -> (Limit, &'static str) {
        let verdict = judge(all).unwrap();
        (verdict.limit, verdict.take)
    }

    #[test]
    fn slow_way_for_bytes_is_told_and_the_fastest_codec_taken() {
        let all = [
            figures("none", 0.95, 100_000.0, 0.05),
            figures("lz4", 8.0, 600_000.0, 0.4),
            figures("zstd", 15.0, 900_000.0, 0.7),
            figures("gzip", 16.0, 300_000.0, 0.99),
        ];
        assert_eq!(judged(&all), (Limit::Bytes, "zstd"));
    }

    #[test]
    fn of_equally_fast_codecs_the_smaller_is_taken() {
        let all = [
            figures("none", 0.95, 100_000.0, 0.05),
            figures("lz4", 8.0, 610_000.0, 0.9),
            figures("zstd", 15.0, 600_000.0, 0.9),
        ];
        assert_eq!(judged(&all), (Limit::Bytes, "zstd"));
    }

    #[test]
    fn server_that_waits_for_no_bytes_gets_what_costs_nothing() {
        let all = [
            figures("none", 0.95, 100_000.0, 0.1),
            figures("lz4", 3.0, 101_000.0, 0.3),
            figures("zstd", 5.0, 99_000.0, 0.5),
        ];
        assert_eq!(judged(&all), (Limit::Batches, "zstd"));
    }

    #[test]
    fn numbers_that_differ_within_the_noise_are_explained() {
        let all = [
            figures("none", 0.95, 100_000.0, 0.1),
            figures("lz4", 3.0, 104_000.0, 0.3),
        ];
        let why = judge(&all).unwrap().why;
        assert!(why.contains("4 % apart; less than 5 % is noise"), "{why}");
        let all = [
            figures("none", 0.95, 100_000.0, 0.05),
            figures("lz4", 8.0, 612_000.0, 0.9),
            figures("zstd", 15.0, 600_000.0, 0.9),
        ];
        let why = judge(&all).unwrap().why;
        assert!(why.contains("as fast as lz4 (2 % apart"), "{why}");
    }

    #[test]
    fn client_that_cannot_keep_up_takes_none() {
        let all = [
            figures("none", 0.95, 900_000.0, 0.3),
            figures("lz4", 3.0, 500_000.0, 0.95),
            figures("zstd", 5.0, 300_000.0, 0.97),
        ];
        let verdict = judge(&all).unwrap();
        assert_eq!((verdict.limit, verdict.take), (Limit::Unknown, "none"));
        assert!(
            verdict.why.contains("zstd would store 20 %"),
            "{}",
            verdict.why
        );
    }

    #[test]
    fn records_that_do_not_shrink_are_sent_as_they_are() {
        let all = [
            figures("none", 0.95, 100_000.0, 0.1),
            figures("lz4", 0.95, 100_000.0, 0.2),
            figures("zstd", 1.01, 99_000.0, 0.2),
        ];
        assert_eq!(judged(&all).1, "none");
    }

    #[test]
    fn difference_within_the_scatter_is_no_reason() {
        let mut all = [
            figures("none", 0.95, 100_000.0, 0.1),
            figures("lz4", 3.0, 130_000.0, 0.2),
        ];
        assert_eq!(judged(&all).0, Limit::Bytes);
        all[0].rates = vec![60_000.0, 100_000.0, 150_000.0];
        assert_eq!(judged(&all).0, Limit::Batches);
    }

    #[test]
    fn codec_that_only_foreign_clients_send_is_not_taken() {
        let all = [
            figures("none", 0.95, 100_000.0, 0.1),
            figures("lz4", 3.0, 250_000.0, 0.3),
            figures("snappy", 3.0, 400_000.0, 0.3),
        ];
        assert_eq!(judged(&all), (Limit::Bytes, "lz4"));
        assert_eq!(judge(&[]), None);
    }
}

//! Sizes for people, in the one form that all of Hulse writes and reads: `64MiB`, `10GB`, `1.5KiB`.

/// Units and their bytes, the largest first of each kind.
pub const UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

/// A size that somebody set, exactly and as short as can be: 10,000,000,000 are `10GB`, not `9765625KiB`.
pub fn exact(bytes: u64) -> String {
    if bytes == 0 {
        return "0B".to_owned();
    }
    let divides = UNITS
        .iter()
        .filter(|(_, factor)| bytes.is_multiple_of(*factor));
    let shortest = divides.min_by_key(|(_, factor)| digits(bytes / factor));
    let (name, factor) = shortest.expect("every size is a multiple of one byte");
    format!("{}{name}", bytes / factor)
}

/// A size that was measured, in binary units with at most two decimals: `96B`, `1.5KiB`, `9.31GiB`.
pub fn about(bytes: u64) -> String {
    let binary = UNITS[..4].iter().find(|(_, factor)| bytes >= *factor);
    let Some((name, factor)) = binary else {
        return format!("{bytes}B");
    };
    let value = format!("{:.2}", bytes as f64 / *factor as f64);
    let value = value.trim_end_matches('0').trim_end_matches('.');
    format!("{value}{name}")
}

fn digits(number: u64) -> u32 {
    number.checked_ilog10().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_size_is_told_in_the_unit_that_says_it_shortest() {
        for (bytes, text) in [
            (0, "0B"),
            (1, "1B"),
            (1025, "1025B"),
            (1 << 20, "1MiB"),
            (1000 << 10, "1000KiB"),
            (3_000_000, "3MB"),
            (10_000_000_000, "10GB"),
            (10 << 30, "10GiB"),
            (2 << 40, "2TiB"),
            (u64::MAX, "18446744073709551615B"),
        ] {
            assert_eq!(exact(bytes), text);
        }
    }

    #[test]
    fn measured_size_is_told_with_at_most_two_decimals() {
        for (bytes, text) in [
            (0, "0B"),
            (96, "96B"),
            (1023, "1023B"),
            (1024, "1KiB"),
            (1536, "1.5KiB"),
            (10_000_000_000, "9.31GiB"),
            (2_254_857_830, "2.1GiB"),
            (1 << 40, "1TiB"),
            (u64::MAX, "16777216TiB"),
        ] {
            assert_eq!(about(bytes), text);
        }
    }
}

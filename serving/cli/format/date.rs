//! Dates in UTC: just enough of strftime and RFC 3339 for formats and positions. Proleptic Gregorian, no leap seconds.

use std::fmt::Write as _;

use hulse_proto::time::TimestampMs;

const DAY_MS: i64 = 86_400_000;
/// Letters of a pattern.
const LETTERS: &str = "YmdHMSLfjsFTz%";

/// Year, month and day of a day number (days since 1970-01-01).
fn civil(days: i64) -> (i64, i64, i64) {
    // Years that begin in March put the leap day last; 146,097 days are 400 years.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// Day number of a date.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let march_month = (month + 9) % 12;
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Midnight of a date; `None` when there is no such day.
fn civil_to_ms(year: i64, month: i64, day: i64) -> Option<TimestampMs> {
    if !(0..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let number = days(year, month, day);
    (civil(number) == (year, month, day)).then_some(number * DAY_MS)
}

/// Says which letter of a pattern is not known.
pub(super) fn check(pattern: &str) -> Result<(), String> {
    let mut letters = pattern.chars();
    while let Some(c) = letters.next() {
        if c != '%' {
            continue;
        }
        match letters.next() {
            Some(letter) if LETTERS.contains(letter) => {}
            Some(letter) => {
                let known: Vec<String> = LETTERS.chars().map(|c| format!("%{c}")).collect();
                return Err(format!(
                    "%{letter} in strftime is not known; use {}",
                    known.join(" ")
                ));
            }
            None => return Err("a percent sign ends the strftime pattern".to_owned()),
        }
    }
    Ok(())
}

/// Writes a time by a checked pattern.
pub(super) fn strftime(ms: TimestampMs, pattern: &str, out: &mut String) {
    let day = ms.div_euclid(DAY_MS);
    let in_day = ms.rem_euclid(DAY_MS);
    let (year, month, day_of_month) = civil(day);
    let (hour, minute) = (in_day / 3_600_000, in_day / 60_000 % 60);
    let (second, milli) = (in_day / 1000 % 60, in_day % 1000);
    let mut letters = pattern.chars();
    while let Some(c) = letters.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let _ = match letters.next() {
            Some('Y') => write!(out, "{year:04}"),
            Some('m') => write!(out, "{month:02}"),
            Some('d') => write!(out, "{day_of_month:02}"),
            Some('H') => write!(out, "{hour:02}"),
            Some('M') => write!(out, "{minute:02}"),
            Some('S') => write!(out, "{second:02}"),
            Some('L') => write!(out, "{milli:03}"),
            Some('f') => write!(out, "{:06}", milli * 1000),
            Some('j') => write!(out, "{:03}", day - days(year, 1, 1) + 1),
            Some('s') => write!(out, "{}", ms.div_euclid(1000)),
            Some('F') => write!(out, "{year:04}-{month:02}-{day_of_month:02}"),
            Some('T') => write!(out, "{hour:02}:{minute:02}:{second:02}"),
            Some('z') => write!(out, "+0000"),
            _ => write!(out, "%"),
        };
    }
}

/// A time for a person.
pub(crate) fn date(ms: TimestampMs) -> String {
    let mut text = String::new();
    strftime(ms, "%FT%TZ", &mut text);
    text
}

/// A time for a person, with its milliseconds.
pub(crate) fn date_and_time(ms: TimestampMs) -> String {
    let mut text = String::new();
    strftime(ms, "%FT%T.%LZ", &mut text);
    text
}

/// Reads `2013-01-01`, `2013-01-01T10:00:00Z` or `…+02:00`, with or without a fraction; `None` for anything else.
pub(crate) fn parse_rfc3339(text: &str) -> Option<TimestampMs> {
    if !text.is_ascii() {
        return None;
    }
    let date = text.get(..10)?;
    let midnight = civil_to_ms(
        number(date, 0, 4, None)?,
        number(date, 5, 7, Some('-'))?,
        number(date, 8, 10, Some('-'))?,
    )?;
    if text.len() == 10 {
        return Some(midnight);
    }
    if !matches!(text.as_bytes()[10], b'T' | b't' | b' ') {
        return None;
    }
    let clock = text.get(11..19)?;
    let hour = number(clock, 0, 2, None).filter(|hour| *hour < 24)?;
    let minute = number(clock, 3, 5, Some(':')).filter(|minute| *minute < 60)?;
    let second = number(clock, 6, 8, Some(':')).filter(|second| *second < 61)?;
    let mut rest = &text[19..];
    let mut milli = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.len()
            - fraction
                .trim_start_matches(|c: char| c.is_ascii_digit())
                .len();
        milli = format!("{:0<3}", &fraction[..digits])[..3].parse().ok()?;
        rest = &fraction[digits..];
    }
    let zone_minutes = match rest.as_bytes() {
        b"Z" | b"z" => 0,
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let minutes = number(rest, 1, 3, None)? * 60 + number(rest, 4, 6, Some(':'))?;
            if *sign == b'+' { minutes } else { -minutes }
        }
        _ => return None,
    };
    let in_day = ((hour * 60 + minute - zone_minutes) * 60 + second) * 1000 + milli;
    Some(midnight + in_day)
}

/// Digits `from..to`, after this character.
fn number(text: &str, from: usize, to: usize, after: Option<char>) -> Option<i64> {
    if let Some(after) = after
        && text.as_bytes().get(from - 1) != Some(&(after as u8))
    {
        return None;
    }
    let digits = text.get(from..to)?;
    digits
        .bytes()
        .all(|c| c.is_ascii_digit())
        .then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_go_there_and_back_over_four_centuries() {
        for day in -100_000..150_000 {
            let (year, month, day_of_month) = civil(day);
            assert_eq!(days(year, month, day_of_month), day);
        }
        assert_eq!(civil_to_ms(2013, 2, 29), None);
        assert_eq!(civil_to_ms(2000, 2, 29), Some(951_782_400_000));
    }

    #[test]
    fn rfc3339_is_read_with_zone_and_fraction() {
        for (text, ms) in [
            ("1970-01-01", Some(0)),
            ("2013-01-01T10:00:00Z", Some(1_357_034_400_000)),
            ("2013-01-01 10:00:00.5Z", Some(1_357_034_400_500)),
            ("2013-01-01T12:00:00.123456+02:00", Some(1_357_034_400_123)),
            ("2013-01-01T10:00:00", None),
            ("2013-13-01", None),
            ("2013-1-01", None),
            ("yesterday", None),
            ("2013-01-01T25:00:00Z", None),
        ] {
            assert_eq!(parse_rfc3339(text), ms, "{text}");
        }
    }
}

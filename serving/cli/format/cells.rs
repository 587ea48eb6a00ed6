//! A record as a row of a table: cut to what a person sees at a glance.

use super::date::date_and_time;
use super::print::RecordView;
use crate::output::grouped;

/// Longest cell.
const CELL_CHARS_MAX: usize = 60;
const HEADINGS: [&str; 6] = ["PARTITION", "OFFSET", "TIME", "KEY", "VALUE", "HEADERS"];

/// What stands above [`cells`].
pub(crate) fn cell_headings(wide: bool) -> &'static [&'static str] {
    &HEADINGS[..if wide { 6 } else { 5 }]
}

/// A record, its headers too when `wide`.
pub(crate) fn cells(record: &RecordView<'_>, wide: bool) -> Vec<String> {
    let mut cells = vec![
        record.partition.to_string(),
        grouped(record.offset),
        date_and_time(record.timestamp),
        cell(record.key),
        value(record),
    ];
    if wide {
        let headers = record
            .headers
            .iter()
            .map(|(name, value)| format!("{}={}", cell(Some(name)), cell(*value)));
        cells.push(headers.collect::<Vec<_>>().join(" "));
    }
    cells
}

/// A value for a cell. None at all is not the same as a key that is missing: with a key it says that the key is deleted.
fn value(record: &RecordView<'_>) -> String {
    match (record.key, record.value) {
        (_, Some(value)) => cell(Some(value)),
        (Some(_), None) => "(tombstone)".to_owned(),
        (None, None) => "(null)".to_owned(),
    }
}

/// Bytes for a cell: text with its control characters escaped, other bytes in hexadecimal, both cut.
fn cell(bytes: Option<&[u8]>) -> String {
    let Some(bytes) = bytes else {
        return "-".to_owned();
    };
    let head = &bytes[..bytes.len().min(4 * CELL_CHARS_MAX)];
    let text = match std::str::from_utf8(head) {
        Ok(text) => Some(text),
        // Cut in the middle of a character.
        Err(error) if error.error_len().is_none() && head.len() < bytes.len() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    let shown: String = match text {
        Some(text) => text
            .chars()
            .flat_map(|c| match c.is_control() {
                true => c.escape_default().collect::<Vec<_>>(),
                false => vec![c],
            })
            .collect(),
        None => {
            let hex: String = head.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("0x{hex}")
        }
    };
    if shown.chars().count() <= CELL_CHARS_MAX && head.len() == bytes.len() {
        return shown;
    }
    let cut: String = shown.chars().take(CELL_CHARS_MAX - 1).collect();
    format!("{cut}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_show_text_as_it_is_and_other_bytes_in_hexadecimal() {
        assert_eq!(cell(None), "-");
        assert_eq!(cell(Some(b"a\tb")), "a\\tb");
        assert_eq!(cell(Some(&[0xff, 1])), "0xff01");
        let long = "ä".repeat(200);
        let shown = cell(Some(long.as_bytes()));
        assert_eq!(shown.chars().count(), CELL_CHARS_MAX);
        assert!(shown.ends_with('…'), "{shown}");
    }
}

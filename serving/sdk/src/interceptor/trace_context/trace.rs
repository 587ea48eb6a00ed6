//! A trace, and its headers.

use std::fmt;
use std::future::Future;
use std::str::FromStr;

use bytes::Bytes;
use hulse_proto::batch::Header;

/// Name of the header that says trace and span.
pub const TRACE_PARENT_HEADER: &str = "traceparent";
/// Name of the header that tracing systems keep their own words in.
pub const TRACE_STATE_HEADER: &str = "tracestate";
/// Longest `tracestate` that is carried on: what the standard asks to carry at least (§3.3.1.5).
const STATE_BYTES_MAX: usize = 512;
/// `00-` + 32 + `-` + 16 + `-` + 2.
const PARENT_BYTES: usize = 55;

tokio::task_local! {
    static CURRENT: Trace;
}

/// The value of `traceparent`: which trace, which span of it, and whether it is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceParent {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    flags: u8,
}

impl TraceParent {
    /// `None`: an id of zeros alone, which is none.
    pub fn new(trace_id: [u8; 16], span_id: [u8; 8], sampled: bool) -> Option<Self> {
        let flags = u8::from(sampled);
        let valid = trace_id != [0; 16] && span_id != [0; 8];
        valid.then_some(Self {
            trace_id,
            span_id,
            flags,
        })
    }

    /// The trace.
    pub fn trace_id(&self) -> [u8; 16] {
        self.trace_id
    }

    /// The span that sent the record.
    pub fn span_id(&self) -> [u8; 8] {
        self.span_id
    }

    /// The sender may have recorded it.
    pub fn is_sampled(&self) -> bool {
        self.flags & 1 == 1
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trace_id = u128::from_be_bytes(self.trace_id);
        let span_id = u64::from_be_bytes(self.span_id);
        write!(f, "00-{trace_id:032x}-{span_id:016x}-{:02x}", self.flags)
    }
}

/// A text that is no `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoTraceParent;

impl fmt::Display for NoTraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a traceparent; one looks like 00-<32 hex digits>-<16>-<2>")
    }
}

impl std::error::Error for NoTraceParent {}

impl FromStr for TraceParent {
    type Err = NoTraceParent;

    /// Reads version 00, and of later ones what they have in common with it (§3.2.4).
    fn from_str(text: &str) -> Result<Self, NoTraceParent> {
        parse(text.as_bytes()).ok_or(NoTraceParent)
    }
}

fn parse(text: &[u8]) -> Option<TraceParent> {
    let (head, rest) = text.split_at_checked(PARENT_BYTES)?;
    let version = hex::<1>(&head[..2])?[0];
    let longer = version > 0 && rest.first() == Some(&b'-');
    let dashes = [2, 35, 52].into_iter().all(|at| head[at] == b'-');
    if version == 0xff || !dashes || !(rest.is_empty() || longer) {
        return None;
    }
    let flags = hex::<1>(&head[53..])?[0];
    // Version 00 knows one flag; others are not passed on.
    TraceParent::new(hex(&head[3..35])?, hex(&head[36..52])?, flags & 1 == 1)
}

/// Lower-case digits only, as the standard says.
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    (text.len() == 2 * N).then_some(bytes)
}

/// A trace as a record carries it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// Which one, and where in it.
    pub parent: TraceParent,
    /// `tracestate` as it came; `None`: there is none, or it is longer than 512 bytes.
    pub state: Option<Bytes>,
}

impl Trace {
    /// Without words of tracing systems.
    pub fn new(parent: TraceParent) -> Self {
        Self {
            parent,
            state: None,
        }
    }

    /// The trace in a record's headers. `None`: there is none, or several, or what is there says none.
    pub fn read(headers: &[Header]) -> Option<Self> {
        let mut parents = named(headers, TRACE_PARENT_HEADER);
        let parent = parents.next()?.value.as_deref()?;
        if parents.next().is_some() {
            return None;
        }
        let mut states = named(headers, TRACE_STATE_HEADER);
        let state = states.next().and_then(|header| header.value.clone());
        Some(Self {
            parent: parse(parent)?,
            state: state.filter(|state| state.len() <= STATE_BYTES_MAX),
        })
    }

    /// The headers that say it.
    pub fn headers(&self) -> Vec<Header> {
        let header = |name: &'static str, value: Bytes| Header {
            key: Bytes::from_static(name.as_bytes()),
            value: Some(value),
        };
        let parent = Bytes::from(self.parent.to_string());
        let state = self.state.clone();
        [header(TRACE_PARENT_HEADER, parent)]
            .into_iter()
            .chain(state.map(|state| header(TRACE_STATE_HEADER, state)))
            .collect()
    }

    /// Runs `work` in this trace: what it sends by a [`super::TraceHeaders`] belongs to it. Tasks that `work` spawns are not in it.
    pub async fn scope<F: Future>(self, work: F) -> F::Output {
        CURRENT.scope(self, work).await
    }

    /// The trace of the [`Trace::scope`] that this is called in.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }
}

fn named<'a>(headers: &'a [Header], name: &'a str) -> impl Iterator<Item = &'a Header> {
    headers
        .iter()
        .filter(move |header| header.key == name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn header(name: &'static str, value: impl Into<Bytes>) -> Header {
        Header {
            key: Bytes::from_static(name.as_bytes()),
            value: Some(value.into()),
        }
    }

    #[test]
    fn traceparent_is_printed_as_it_is_read() {
        let parent: TraceParent = EXAMPLE.parse().unwrap();
        assert_eq!(parent.to_string(), EXAMPLE);
        assert!(parent.is_sampled());
        assert_eq!(
            parent.span_id(),
            [0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]
        );
        assert_eq!(parent.trace_id()[..2], [0x4b, 0xf9]);
        let made = TraceParent::new(parent.trace_id(), parent.span_id(), true);
        assert_eq!(made, Some(parent));
    }

    #[test]
    fn later_versions_are_read_as_far_as_they_are_known() {
        let later = EXAMPLE.replacen("00", "cc", 1);
        for text in [later.clone(), format!("{later}-what-comes"), {
            let mut flags = later.clone();
            flags.replace_range(53.., "ff");
            flags
        }] {
            let parent: TraceParent = text.parse().unwrap();
            assert_eq!(parent.to_string(), EXAMPLE, "{text}");
        }
        assert!(format!("{later}.what").parse::<TraceParent>().is_err());
    }

    #[test]
    fn what_is_no_trace_is_passed_over() {
        let zeros = |range: std::ops::Range<usize>| {
            let mut text = EXAMPLE.to_owned();
            let length = range.len();
            text.replace_range(range, &"0".repeat(length));
            text
        };
        let mut bad = vec![
            String::new(),
            EXAMPLE.to_uppercase(),
            EXAMPLE.replacen("00", "ff", 1),
            EXAMPLE.replace('-', "_"),
            format!("{EXAMPLE}-more"),
            zeros(3..35),
            zeros(36..52),
        ];
        bad.extend((0..EXAMPLE.len()).map(|cut| EXAMPLE[..cut].to_owned()));
        for text in bad {
            assert!(text.parse::<TraceParent>().is_err(), "{text}");
            let headers = [header(TRACE_PARENT_HEADER, text.clone())];
            assert_eq!(Trace::read(&headers), None, "{text}");
        }
        let twice = [
            header(TRACE_PARENT_HEADER, EXAMPLE),
            header(TRACE_PARENT_HEADER, EXAMPLE),
        ];
        assert_eq!(Trace::read(&twice), None);
    }

    #[test]
    fn state_goes_along_unless_it_is_too_long() {
        let of = |state: String| {
            let headers = [
                header(TRACE_PARENT_HEADER, EXAMPLE),
                header(TRACE_STATE_HEADER, state),
            ];
            Trace::read(&headers).unwrap()
        };
        let trace = of("vendor=1".to_owned());
        assert_eq!(trace.state.as_deref(), Some(&b"vendor=1"[..]));
        assert_eq!(Trace::read(&trace.headers()), Some(trace));
        assert_eq!(of("x".repeat(513)).state, None);
    }

    #[tokio::test]
    async fn scope_is_that_of_its_work_alone() {
        assert_eq!(Trace::current(), None);
        let trace = Trace::new(EXAMPLE.parse().unwrap());
        let found = trace.clone().scope(async { Trace::current() }).await;
        assert_eq!(found, Some(trace));
        assert_eq!(Trace::current(), None);
    }
}

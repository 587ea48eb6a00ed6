//! The table of cases of the format language, both directions.

use bytes::Bytes;

use super::{HeaderView, Printer, RecordView, Scanned, Scanner};

const HEADERS: &[HeaderView<'static>] = &[
    (b"a", Some(b"1")),
    (b"b", Some(b"x\"y")),
    (b"a", Some(b"2")),
    (b"n", None),
];

fn view() -> RecordView<'static> {
    RecordView {
        topic: "public/default/orders",
        partition: 3,
        offset: 258,
        timestamp: 1_357_034_400_123,
        key: Some(b"k1"),
        value: Some(b"h\xc3\xa9\n"),
        headers: HEADERS,
    }
}

fn printed(format: &str, record: &RecordView<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    Printer::new(format).unwrap().print(record, &mut out);
    out
}

#[test]
fn record_is_printed_as_each_format_says() {
    let cases: &[(&str, &[u8])] = &[
        ("", b""),
        ("plain", b"plain"),
        ("%t", b"public/default/orders"),
        ("%t{hex}", b"7075626c69632f64656661756c742f6f7264657273"),
        ("%t{len}", b"21"),
        ("%p", b"3"),
        ("%o", b"258"),
        ("%p/%o", b"3/258"),
        ("%o{hex}", b"102"),
        ("%o{big32}", b"\0\0\x01\x02"),
        ("%o{big64}", b"\0\0\0\0\0\0\x01\x02"),
        ("%k", b"k1"),
        ("%v", b"h\xc3\xa9\n"),
        ("%s", b"h\xc3\xa9\n"),
        ("%v{hex}", b"68c3a90a"),
        ("%v{base64}", b"aMOpCg=="),
        ("%v{json}", b"\"h\xc3\xa9\\n\""),
        ("%v{len}", b"4"),
        ("%k{len}:%k", b"2:k1"),
        ("%K %S", b"2 4"),
        ("%S{big32}%v", b"\0\0\0\x04h\xc3\xa9\n"),
        ("%h", b"a=1,b=x\"y,a=2,n="),
        (
            "%h{json}",
            b"[{\"name\":\"a\",\"value\":\"1\"},{\"name\":\"b\",\"value\":\"x\\\"y\"},\
              {\"name\":\"a\",\"value\":\"2\"},{\"name\":\"n\",\"value\":null}]",
        ),
        ("%P{b}", b"x\"y"),
        ("%P{a}", b"2"),
        ("%P{a}{hex}", b"32"),
        ("%P{none}", b""),
        ("%P{none}{json}", b"null"),
        ("%T", b"1357034400123"),
        ("%T{json}", b"1357034400123"),
        ("%T{strftime[%Y-%m-%d]}", b"2013-01-01"),
        ("%T{strftime[%FT%T.%LZ]}", b"2013-01-01T10:00:00.123Z"),
        (
            "%T{strftime[%H:%M:%S.%f %j %s %z %%]}",
            b"10:00:00.123000 001 1357034400 +0000 %",
        ),
        ("%T{strftime[{%Y}]}", b"{2013}"),
        ("%i", b"1"),
        ("100%%", b"100%"),
        ("%%t", b"%t"),
        ("\\n\\t\\r\\0\\\\", b"\n\t\r\0\\"),
        ("\\x00\\xff\\x41", b"\x00\xffA"),
        ("{%p}", b"{3}"),
        ("\u{e9}%p\u{e9}", b"\xc3\xa93\xc3\xa9"),
    ];
    for (format, expected) in cases {
        let found = printed(format, &view());
        assert_eq!(
            found,
            *expected,
            "{format}: {}",
            String::from_utf8_lossy(&found)
        );
    }
}

#[test]
fn null_and_binary_parts_are_told_apart() {
    let record = RecordView {
        key: None,
        value: Some(b"\xff\x00"),
        headers: &[],
        timestamp: -1,
        ..view()
    };
    for (format, expected) in [
        ("[%k]", "[]"),
        ("%k{json}", "null"),
        ("%k{len} %K", "-1 -1"),
        ("%v{json}", "{\"base64\":\"/wA=\"}"),
        ("%h|", "|"),
        ("%h{json}", "[]"),
        ("%T{strftime[%F %T.%L]}", "1969-12-31 23:59:59.999"),
    ] {
        assert_eq!(printed(format, &record), expected.as_bytes(), "{format}");
    }
}

#[test]
fn counter_grows_with_each_record() {
    let mut printer = Printer::new("%i ").unwrap();
    let mut out = Vec::new();
    for _ in 0..3 {
        printer.print(&view(), &mut out);
    }
    assert_eq!(out, b"1 2 3 ");
}

#[test]
fn wrong_format_is_refused_with_its_place() {
    for (format, at, words) in [
        ("%q", 0, "%q is not known"),
        ("ab%", 2, "write %%"),
        ("%v{hx}", 2, "{hx} is not known"),
        ("%v{hex", 2, "not closed"),
        ("%p{base64}", 2, "does not go with"),
        ("%v{big32}", 2, "does not go with"),
        ("%o{strftime[%Y]}", 2, "does not go with"),
        ("%T{strftime[%Q]}", 2, "%Q in strftime"),
        ("%T{strftime[%Y}", 2, "not closed"),
        ("%P", 0, "%P{name}"),
        ("%R", 0, "subscription"),
        ("\\q", 0, "\\q is not known"),
        ("\\x4", 0, "two hexadecimal digits"),
        ("a\\", 1, "write \\\\"),
    ] {
        let error = Printer::new(format).unwrap_err();
        assert_eq!(error.at, at, "{format}: {error}");
        assert!(error.why.contains(words), "{format}: {error}");
    }
}

fn scanned(format: &str, input: &'static [u8]) -> Result<Scanned, String> {
    Scanner::new(format)
        .unwrap()
        .record(&Bytes::from_static(input))
}

fn record(key: Option<&'static str>, value: Option<&'static str>) -> Scanned {
    Scanned {
        key: key.map(Bytes::from),
        value: value.map(Bytes::from),
        ..Scanned::default()
    }
}

#[test]
fn record_is_read_as_each_format_says() {
    for (format, input, expected) in [
        ("%v\n", &b"hello"[..], record(None, Some("hello"))),
        ("%v", b"", record(None, Some(""))),
        ("%k\\t%v\\n", b"a\tb\tc", record(Some("a"), Some("b\tc"))),
        ("%k::%s", b"a:b::c", record(Some("a:b"), Some("c"))),
        ("<%k>%v\n", b"<x>y", record(Some("x"), Some("y"))),
        ("%v{hex}", b"6869", record(None, Some("hi"))),
        ("%v{base64}", b"aGk=", record(None, Some("hi"))),
        (
            "%k{json} %v{json}",
            b"null \"a\\nb\"",
            record(None, Some("a\nb")),
        ),
        ("%v{json}", b"{\"a\": 1}", record(None, Some("{\"a\": 1}"))),
        (
            "%v{json}",
            b" {\"b\":1, \"a\":2,\"b\":123456789012345678901234567890.10e3} ",
            record(
                None,
                Some("{\"b\":1, \"a\":2,\"b\":123456789012345678901234567890.10e3}"),
            ),
        ),
        ("%v{json}", b"1.0 ", record(None, Some("1.0"))),
        ("%v{json}", b"null", record(None, None)),
    ] {
        assert_eq!(scanned(format, input), Ok(expected), "{format}");
    }
    let full = scanned("%p|%T|%h|%v\n", b"2|-7|a=1,b=x=y|v").unwrap();
    assert_eq!((full.partition, full.timestamp), (Some(2), Some(-7)));
    let headers: Vec<(String, Bytes)> =
        vec![("a".to_owned(), "1".into()), ("b".to_owned(), "x=y".into())];
    assert_eq!(full.headers, headers);
}

#[test]
fn wrong_input_is_refused_with_the_reason() {
    for (format, input, words) in [
        ("%k\\t%v", &b"no tab"[..], "has no \"\\t\""),
        ("<%v", b"x", "does not begin"),
        ("%v{hex}", b"abc", "odd number"),
        ("%v{hex}", b"zz", "hexadecimal"),
        ("%v{base64}", b"?", "base64"),
        ("%v{json}", b"{", "JSON"),
        ("%v{json}", b" ", "no value"),
        ("%v{json}", b"{} {}", "behind the value"),
        ("%v{json}", b"{\"a\":\"\xff\"}", "JSON"),
        ("%v{json}", b"{\"a\":01}", "JSON"),
        ("%p %v", b"-1 x", "no partition"),
        ("%T %v", b"now x", "no timestamp"),
        ("%h %v", b"a x", "name=value"),
    ] {
        let error = scanned(format, input).unwrap_err();
        assert!(error.contains(words), "{format}: {error}");
    }
}

#[test]
fn format_that_cannot_be_read_is_refused() {
    for (format, words) in [
        ("%k%v", "nothing stands between %k and %v"),
        ("%S %v", "%S cannot be read"),
        ("%P{a}{hex} %v", "%P{a}{hex} cannot be read"),
        ("%o %v", "cannot be read"),
        ("%t %v", "cannot be read"),
        ("%v{len}", "cannot be read"),
        ("%T{strftime[%Y]} %v", "cannot be read"),
        ("%v %v", "twice"),
        ("\\n", "no letter"),
        ("", "no letter"),
    ] {
        let error = Scanner::new(format).unwrap_err();
        assert!(error.why.contains(words), "{format}: {error}");
    }
}

#[test]
fn end_of_a_record_is_the_last_literal_or_a_newline() {
    assert_eq!(Scanner::new("%k %v;;").unwrap().end(), b";;");
    assert_eq!(Scanner::new("%k %v").unwrap().end(), b"\n");
}

use proptest::prelude::*;
use trilogue_wire::sse::{Decoder, Error, Item, Limits, encode};

fn decode(pieces: &[&[u8]]) -> Vec<Item> {
    let mut decoder = Decoder::default();
    let mut items = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        while let Some(item) = decoder.next().unwrap() {
            items.push(item);
        }
    }
    items
}

fn event(id: &str, event: &str, data: &str) -> Item {
    Item::Event { id: id.to_owned(), event: event.to_owned(), data: data.to_owned() }
}

#[test]
fn reads_every_field_and_every_line_end() {
    for end in ["\n", "\r", "\r\n"] {
        let text = [
            "\u{feff}: hello",
            "retry: 1500",
            "id: 7",
            "event: gap",
            "data: one",
            "data:two",
            "",
            "data",
            "",
            "event: nothing",
            "",
            "unknown: x",
            "id: a\0b",
            "data:  led",
            "",
            "data: cut off",
        ]
        .join(end);
        let items = decode(&[text.as_bytes()]);
        let expected = vec![
            Item::Comment("hello".to_owned()),
            Item::Retry(1500),
            event("7", "gap", "one\ntwo"),
            event("7", "message", ""),
            event("7", "message", " led"),
        ];
        assert_eq!(items, expected, "{end:?}");
    }
}

#[test]
fn a_split_crlf_is_one_line_end() {
    let items = decode(&[b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n"]);
    assert_eq!(items, [event("", "message", "a\nb")]);
}

#[test]
fn an_endless_line_and_an_endless_event_are_refused() {
    let limits = Limits { max_line_bytes: 10, max_event_bytes: 8 };
    let mut decoder = Decoder::new(limits);
    decoder.push(b"data: ok\n\ndata: 12");
    decoder.push(b"345");
    assert_eq!(decoder.next(), Ok(Some(event("", "message", "ok"))));
    assert_eq!(decoder.next(), Err(Error::LineTooLong(10)));
    decoder.push(b"\n\ndata: x\n\n");
    assert_eq!(decoder.next(), Err(Error::LineTooLong(10)));

    let mut decoder = Decoder::new(limits);
    for _ in 0..3 {
        decoder.push(b"data: 123\n");
    }
    assert_eq!(decoder.next(), Err(Error::EventTooLarge(8)));
}

#[test]
fn what_is_not_utf8_is_an_error_and_not_a_guess() {
    let mut decoder = Decoder::default();
    decoder.push(b"data: \xff\n\n");
    assert_eq!(decoder.next(), Err(Error::NotUtf8));
}

#[test]
fn a_line_break_cannot_forge_a_field() {
    let mut out = Vec::new();
    encode(&mut out, Some("1\ndata: forged"), Some("e\r\rid: 9"), b"a\r\n\rb\n");
    assert_eq!(decode(&[&out]), [event("1data: forged", "eid: 9", "a\n\nb\n")]);
}

proptest! {
    #[test]
    fn what_is_written_is_read_back_however_it_is_split(
        events in prop::collection::vec(("[a-z0-9.]{1,8}", "[a-z]{0,5}", "[a-zä😀 :\n]{0,40}"), 0..8),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for (id, name, data) in &events {
            let named = (!name.is_empty()).then_some(name.as_str());
            encode(&mut bytes, Some(id), named, data.as_bytes());
            expected.push(event(id, named.unwrap_or("message"), data));
        }
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<_> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
        prop_assert_eq!(decode(&pieces), expected);
    }

    #[test]
    fn no_bytes_make_the_decoder_panic_or_grow(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut decoder = Decoder::new(Limits { max_line_bytes: 64, max_event_bytes: 64 });
        for piece in bytes.chunks(7) {
            decoder.push(piece);
            while let Ok(Some(item)) = decoder.next() {
                if let Item::Event { data, .. } = item {
                    prop_assert!(data.len() <= 64);
                }
            }
        }
    }
}

//! Tests of the binary bodies: what clients send, and what nobody should.

use super::*;

fn text16(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text.as_bytes());
}

fn counted32(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend(bytes);
}

/// Groups of (queue, partition, messages of transaction id and payload).
type Groups<'g> = &'g [(&'g str, &'g str, &'g [(&'g str, &'g str)])];

fn plain(groups: Groups<'_>, ids: bool) -> Vec<u8> {
    let mut out = (groups.len() as u32).to_le_bytes().to_vec();
    for (queue, partition, messages) in groups {
        text16(&mut out, queue);
        text16(&mut out, partition);
        out.extend((messages.len() as u32).to_le_bytes());
        for (id, payload) in *messages {
            if ids {
                text16(&mut out, id);
            }
            counted32(&mut out, payload.as_bytes());
        }
    }
    out
}

fn framed(groups: Groups<'_>) -> Vec<u8> {
    let mut out = (groups.len() as u32).to_le_bytes().to_vec();
    for (queue, partition, messages) in groups {
        text16(&mut out, queue);
        text16(&mut out, partition);
        out.extend((messages.len() as u32).to_le_bytes());
        let mut frames = Vec::new();
        for (id, payload) in *messages {
            let mut frame = vec![0];
            frame.extend([9; 16]);
            text16(&mut frame, id);
            frame.extend(payload.as_bytes());
            counted32(&mut frames, &frame);
        }
        counted32(&mut out, &zstd::bulk::compress(&frames, 1).unwrap());
    }
    out
}

fn push_body(flags: u8, groups: &[u8]) -> Vec<u8> {
    [b"QPB1", &[flags][..], groups].concat()
}

/// As if there were memory for all.
fn free(_: usize) -> Result<(), Refusal> {
    Ok(())
}

/// What a body holds: queue, partition, transaction id, payload of each message.
fn read(body: Result<Binary<'_>, Refusal>) -> Result<Vec<String>, String> {
    let text = |refusal| match refusal {
        Refusal::Plain(error) => error.text,
        other => panic!("{other:?}"),
    };
    let body = body.map_err(text)?;
    let mut found = Vec::new();
    for group in body.groups(&mut free).map_err(text)? {
        for message in group.messages().map_err(text)? {
            let id = message.transaction_id.unwrap_or("-");
            let payload = message.payload.get();
            found.push(format!("{} {} {id} {payload}", group.queue, group.partition));
        }
    }
    Ok(found)
}

const GROUPS: Groups<'_> =
    &[("q", "p", &[("a", "{\"n\": 1.0}"), ("", "null")]), ("ä", "", &[("b", " \"x\" ")])];

#[test]
fn every_form_of_a_push_gives_the_same_messages() {
    let want = ["q p a {\"n\": 1.0}", "q p - null", "ä  b \"x\""];
    assert_eq!(read(Binary::push(&push_body(IDS, &plain(GROUPS, true)), &mut free)).unwrap(), want);
    assert_eq!(read(Binary::push(&push_body(FRAMED, &framed(GROUPS)), &mut free)).unwrap(), want);
    let raw = plain(GROUPS, true);
    let mut packed = (raw.len() as u32).to_le_bytes().to_vec();
    packed.extend(zstd::bulk::compress(&raw, 1).unwrap());
    let body = push_body(ZSTD | IDS | COUNTS, &packed);
    let binary = Binary::push(&body, &mut free).unwrap();
    assert!(binary.counts);
    assert_eq!(read(Ok(binary)).unwrap(), want);
    let without = read(Binary::push(&push_body(0, &plain(GROUPS, false)), &mut free)).unwrap();
    assert_eq!(without[0], "q p - {\"n\": 1.0}");
}

#[test]
fn a_transaction_has_a_head_before_its_groups() {
    let mut body = b"QTB1\x02".to_vec();
    counted32(&mut body, b"{\"kv\":[]}");
    body.extend(framed(GROUPS));
    let binary = Binary::transaction(&body).unwrap();
    assert_eq!((binary.head, binary.counts), (&b"{\"kv\":[]}"[..], true));
    assert_eq!(read(Ok(binary)).unwrap().len(), 3);
    assert!(read(Binary::push(&body, &mut free)).unwrap_err().contains("QPB1"));
}

#[test]
fn what_is_not_as_it_says_is_refused() {
    let refused = |body: &[u8]| read(Binary::push(body, &mut free)).unwrap_err();
    let good = push_body(IDS, &plain(GROUPS, true));
    for cut in 0..good.len() {
        assert!(refused(&good[..cut]).contains("ends within"), "cut at {cut}");
    }
    assert!(refused(&[&good[..], b"x"].concat()).contains("1 bytes follow its end"));
    assert!(refused(&push_body(16, &[])).contains("flags 0x10"));
    let many = [&1u32.to_le_bytes()[..], &[0; 4], &u32::MAX.to_le_bytes()].concat();
    assert!(refused(&push_body(0, &many)).contains("ends within"));
    let mut boast = [&1u32.to_le_bytes()[..], &[0; 4], &u32::MAX.to_le_bytes()].concat();
    counted32(&mut boast, &zstd::bulk::compress(b"few", 1).unwrap());
    assert!(refused(&push_body(FRAMED, &boast)).contains("messages has 3 bytes"));
    let mut bomb = (u32::MAX).to_le_bytes().to_vec();
    bomb.extend(zstd::bulk::compress(&[0; 1000], 1).unwrap());
    assert!(refused(&push_body(ZSTD, &bomb)).contains("unfolds to more than"));
    let mut wrong = 999u32.to_le_bytes().to_vec();
    wrong.extend(zstd::bulk::compress(&[0; 1000], 1).unwrap());
    assert!(refused(&push_body(ZSTD, &wrong)).contains("zstd"));
    let mut full = |_| Err(Refusal::bad_request("no room"));
    let framed = push_body(FRAMED, &framed(GROUPS));
    assert!(Binary::push(&framed, &mut full).unwrap().groups(&mut full).is_err());
    let two: Groups<'_> = &[("q", "p", &[("", "1 2")])];
    assert!(refused(&push_body(0, &plain(two, false))).contains("one JSON document"));
    let none: Groups<'_> = &[("q", "p", &[("", "")])];
    let none = super::tests::framed(none);
    assert!(refused(&push_body(FRAMED, &none)).contains("one JSON document"));
}

#[test]
fn the_type_of_the_body_decides() {
    let of = |kind: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, kind.parse().unwrap());
        is_binary(&headers)
    };
    assert!(of("application/x-queen-push") && of("Application/X-Queen-Push; v=1"));
    assert!(!of("application/json") && !is_binary(&HeaderMap::new()));
}

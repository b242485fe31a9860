use proptest::prelude::*;

use super::*;

fn parse(chunks: &[&[u8]]) -> Vec<Event> {
    let (mut parser, mut out) = (Parser::default(), VecDeque::new());
    for chunk in chunks {
        assert!(parser.push(chunk, &mut out));
    }
    out.into()
}

fn event(name: &str, data: &str) -> Event {
    Event { name: name.to_owned(), data: data.to_owned() }
}

#[test]
fn every_line_end_counts_and_comments_do_not() {
    let text = b"\xef\xbb\xbf: hello\r\nevent: applied\r\ndata: {\"a\":\r\ndata:1}\r\n\r\n:\n\nretry: 5\rdata\r\rdata: cut off";
    assert_eq!(parse(&[text]), [event("applied", "{\"a\":\n1}"), event("message", "")]);
}

#[test]
fn an_event_without_data_is_none_and_leaves_no_name_behind() {
    assert_eq!(parse(&[b"event: a\n\ndata: x\n\n"]), [event("message", "x")]);
}

#[tokio::test]
async fn a_problem_in_mid_stream_is_what_the_server_said() {
    let text = b"event: cluster\ndata: {}\n\nevent: problem\ndata: {\"code\":\"too-late\",\"status\":504,\"detail\":\"late\"}\n\n";
    let chunks = futures::stream::iter([Ok(bytes::Bytes::from_static(text))]).boxed();
    let mut events = Events::new(chunks, "http://here".to_owned());
    assert_eq!(events.next().await.unwrap().unwrap().name, "cluster");
    let said = events.next().await.unwrap_err();
    assert!(matches!(&said, ClientError::Refused(problem) if problem.code == "too-late"), "{said}");
    assert!(events.next().await.unwrap().is_none());
    let error = events.next_before("its end").await.unwrap_err().to_string();
    assert!(error.contains("http://here ended the stream before its end"), "{error}");
}

proptest! {
    #[test]
    fn any_chunking_gives_the_same_events(
        // Mostly what a stream is made of, so that every state meets every boundary.
        bytes in proptest::collection::vec(
            prop_oneof![
                Just(b'\n'), Just(b'\r'), Just(b':'), Just(b' '), Just(b'd'), Just(b'a'),
                Just(b't'), Just(b'e'), any::<u8>(),
            ],
            0..200,
        ),
        cuts in proptest::collection::vec(0_usize..200, 0..20),
    ) {
        let whole = parse(&[&bytes]);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
        prop_assert_eq!(parse(&pieces), whole);
    }

    #[test]
    fn what_is_written_is_read(
        sent in proptest::collection::vec(("[a-z]{1,8}", "[^\r\n\u{feff}]{0,20}(\n[^\r\n]{0,20}){0,3}"), 0..10),
    ) {
        let text: String = sent
            .iter()
            .map(|(name, data)| {
                let lines: String = data.split('\n').map(|l| format!("data: {l}\n")).collect();
                format!("event: {name}\n{lines}\n")
            })
            .collect();
        let read: Vec<_> = parse(&[text.as_bytes()]).into_iter().map(|e| (e.name, e.data)).collect();
        prop_assert_eq!(read, sent);
    }
}

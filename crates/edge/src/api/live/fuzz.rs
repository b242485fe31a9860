use super::*;

/// A frame of the socket's client. What is subscribed to is within its bounds, what is refused is told in a frame
/// that a client can read, and a place to go on from is read as it was written.
pub fn socket_message(bytes: &[u8]) {
    let (id, problem) = match serde_json::from_slice::<ClientFrame>(bytes) {
        Err(error) => (None, Problem::invalid(error.to_string())),
        Ok(frame) => {
            for token in tokens(frame.resume.as_ref()) {
                assert_eq!(rows::Token::read(&token.text()), Some(token));
            }
            match Topic::read(&frame.topic, frame.params) {
                Err(problem) => (Some(frame.id), problem),
                Ok(topic) => {
                    if let Topic::Rows((clusters, query)) = topic {
                        assert!((1..=CLUSTERS).contains(&clusters.len()));
                        let named = query.namespaces.as_ref().map_or(1, Vec::len);
                        assert!((1..=rows::NAMESPACES).contains(&named));
                    }
                    return;
                }
            }
        }
    };
    let told: Value = serde_json::from_str(&frames::end(id, None, &problem)).expect("it is JSON");
    assert_eq!(told["type"], "end");
    assert_eq!(told["id"].as_u64(), id);
    assert!(told["problem"]["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{told}");
}

/// The tokens of a `resume`, as `rows` reads them.
fn tokens(resume: Option<&Value>) -> Vec<rows::Token> {
    let texts: Vec<&Value> = match resume {
        Some(Value::Object(tokens)) => tokens.values().collect(),
        other => other.into_iter().collect(),
    };
    texts.into_iter().filter_map(Value::as_str).filter_map(rows::Token::read).collect()
}

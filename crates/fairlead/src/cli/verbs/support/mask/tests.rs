use super::*;

fn applied(known: &[&str], text: &str) -> String {
    let known = known.iter().map(|secret| secret.as_bytes().to_vec()).collect();
    let masked = Masks::new(known).unwrap().apply(text.as_bytes().to_vec());
    String::from_utf8(masked).unwrap()
}

#[test]
fn every_shape_of_a_secret_is_masked_and_what_is_around_it_stays() {
    for (text, masked) in [
        ("authorization: Bearer abcDEF123456-_", "authorization: Bearer [masked]"),
        (r#"{"authorization":"Basic dXNlcjpwYXNz"}"#, r#"{"authorization":"Basic [masked]"}"#),
        ("got eyJhbGciOiJSUzI1.eyJpc3MiOiJrdWJl.c2ln from x", "got [masked] from x"),
        ("as flt_ab12_0123456789abcdefghij did", "as [masked] did"),
        ("proxy http://me:hunter22@proxy:3128/", "proxy http://me:[masked]@proxy:3128/"),
        (
            "login http://127.0.0.1:7680/login?code=a1b2c3",
            "login http://127.0.0.1:7680/login?code=[masked]",
        ),
        ("FAIRLEAD_API_TOKEN=s3cr3t-value", "FAIRLEAD_API_TOKEN=[masked]"),
        ("client-key-data: LS0tLS1CRUdJTg==", "client-key-data: [masked]"),
        (r#"{"key":"/x?token=abcdef","late":true}"#, r#"{"key":"/x?token=[masked]","late":true}"#),
        (r#""password": "correct horse""#, r#""password": "[masked]""#),
        (r#"{"msg":"{\"token\":\"abcdef\"}"}"#, r#"{"msg":"{\"token\":\"[masked]\"}"}"#),
        (
            "-----BEGIN EC PRIVATE KEY-----\nMHcC\nAQEE\n-----END EC PRIVATE KEY-----",
            "-----BEGIN EC PRIVATE KEY-----[masked]-----END EC PRIVATE KEY-----",
        ),
    ] {
        assert_eq!(applied(&[], text), masked, "{text}");
    }
}

#[test]
fn what_is_no_secret_stays() {
    for text in [
        "admin.token-file = /etc/fairlead/token",
        "guard.token-file  -  default",
        "fairlead_fresh_hits_total{token=\"x\"} 3",
        "the token at /var/lib/fairlead/token may not be read",
        r#"{"token":null}"#,
        "https://10.0.0.1:6443/api/v1/namespaces",
    ] {
        assert_eq!(applied(&[], text), text);
    }
}

#[test]
fn known_secrets_are_masked_wherever_they_stand_and_words_are_not() {
    assert_eq!(applied(&["hunter2-hunter2"], "xhunter2-hunter2y"), "x[masked]y");
    assert_eq!(applied(&["long-secret-1", "long-secret-1-2"], "long-secret-1-2"), "[masked]");
    assert_eq!(applied(&["pod\n", ""], "pod"), "pod");
}

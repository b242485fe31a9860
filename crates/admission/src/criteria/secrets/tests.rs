use super::find;
use crate::pod::Env;

fn kind(name: &str, value: &str) -> Option<&'static str> {
    let env = [Env { name: name.to_owned(), value: value.to_owned(), value_from: None }];
    find(&env).map(|(_, kind)| kind)
}

// Put together here, so that no scanner takes this file for a leak.
fn joined(parts: &[&str]) -> String {
    parts.concat()
}

#[test]
fn each_kind_is_found_and_named() {
    let hex = "0123456789abcdef0f1e2d3c4b5a6978";
    let mixed = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5h";
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    let cases = [
        ("KEY", joined(&["x\n-----BEGIN RSA ", "PRIVATE KEY-----"]), "private key"),
        ("KEY", joined(&["-----BEGIN PGP ", "PRIVATE KEY BLOCK-----"]), "private key"),
        ("KEY", joined(&["a=<RSA", "KeyValue>"]), "private key"),
        ("ID", joined(&["AK", "IA", "2B4D6F8H1J3L5N7Q"]), "AWS access key"),
        ("ID", joined(&["x\nAK", "IA", "2B4D6F8H1J3L5N7Q"]), "AWS access key"),
        ("ID", joined(&["amzn.", "mws.", uuid]), "AWS MWS key"),
        ("URL", joined(&["https://fb.com/&access", "_token=", hex]), "Facebook"),
        ("MY_FB_APP", hex.to_owned(), "Facebook app"),
        ("TWITTER_ID", "aB3dE5gH7jK9mN1pQ3s".to_owned(), "Twitter"),
        ("GITHUB_TOKEN", mixed[..36].to_owned(), "GitHub"),
        ("X", joined(&["sq0", "atp-", &mixed[..22]]), "Square"),
        ("X", joined(&["sk_", "live_", &mixed[..24]]), "Stripe"),
        ("X", joined(&["xo", "xb-123456-abcdef"]), "Slack token"),
        (
            "X",
            joined(&[
                "https://hooks.slack",
                ".com/services/T12345678/B12345678/",
                &mixed[..24],
                "x",
            ]),
            "Slack webhook",
        ),
        ("LINKEDIN_ID", "0a1b2c3d4e5f6g".to_owned(), "LinkedIn"),
        ("X", joined(&["AI", "za", &mixed[..34], "-"]), "Google"),
        ("X", joined(&["SG", ".", &mixed[..22], ".", mixed]), "SendGrid"),
        ("TWILIO", joined(&["S", "K", hex]), "Twilio"),
        ("HEROKU_KEY", uuid.to_uppercase(), "Heroku"),
        ("MC_KEY", joined(&[hex, "-us", "12"]), "MailChimp"),
        ("MG", joined(&["key", "-", hex]), "Mailgun"),
        ("DB_PASSWORD", "aB3!dE5gH7jK9mN1pQ3s".to_owned(), "credential"),
        ("CONF", "passwd: abcdefgh12345678".to_owned(), "password in text"),
    ];
    for (name, value, expected) in cases {
        assert_eq!(kind(name, &value), Some(expected), "{name} = {value}");
    }
}

#[test]
fn what_is_short_plain_an_example_or_a_reference_is_not_found() {
    let cases = [
        ("DB_PASSWORD", "short"),
        ("DB_PASSWORD", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
        ("DB_PASSWORD", "aB3!dE5gH7jK9mN1pQ3s#tail"),
        ("DB_PASSWORD", "example-aB3dE5gH7jK9mN1pQ3s"),
        ("LINKEDIN_ID", "0A1B2C3D4E5F6G"),
        ("OTHER", "aB3!dE5gH7jK9mN1pQ3s"),
        ("NAME", ""),
    ];
    for (name, value) in cases {
        assert_eq!(kind(name, value), None, "{name} = {value}");
    }
}

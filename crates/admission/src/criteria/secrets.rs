//! `envVarSecrets`: literal values of variables that look like secrets. Only the variable's name
//! and the kind of secret ever leave here.

use std::sync::LazyLock;

use objects::kinds::admission_rule::{Regex, regex};

use crate::pod::Env;

const HIGHEST_ENTROPY: f64 = 6.0;

struct Pattern {
    kind: &'static str,
    regex: Regex,
    /// Bits per character of what the first group took.
    entropy: Option<f64>,
}

/// Before a token: a blank, a quote, `|`, `=` or `:`.
const BEFORE: &str = r#"[\s"'|=:]"#;
/// After a value: white space, the end of the line, a quote.
const AFTER: &str = r#"(?:[\s"']|$)"#;
const UUID: &str = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";

static PATTERNS: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    let mut patterns = Vec::new();
    let mut add = |kind, text: &str, entropy| {
        let regex = regex(text).expect("patterns of ours compile; a test holds them to it");
        patterns.push(Pattern { kind, regex, entropy });
    };
    add(
        "private key",
        "-----BEGIN (?:(?:EC|PGP|DSA|RSA|OPENSSH|SSH2) )?PRIVATE KEY(?: BLOCK)?-----\
         |PuTTY-User-Key-File-2:|<RSAKeyValue>",
        None,
    );
    let token = |what: &str| format!("(?m){BEFORE}{what}{AFTER}");
    add(
        "AWS access key",
        &token(
            "(?:A3T[A-Z0-9]|ACCA|AKIA|AGPA|AIDA|AIPA|ANPA|ANVA|APKA|AROA|ASCA|ASIA)([A-Z0-9]{16})",
        ),
        Some(3.375),
    );
    add("AWS MWS key", &token(&format!(r"amzn\.mws\.{UUID}")), None);
    let facebook = r"(?i)(?:facebook|fb)\S{0,32}";
    add(
        "Facebook",
        &format!(r"{facebook}access_token.{{0,128}}client_secret=(?-i:[0-9a-f]{{32}})\b"),
        None,
    );
    add("Facebook", &format!(r"{facebook}&access_token=[0-9a-f]{{32}}\b"), None);
    let named = |keyword: &str, value: &str| {
        format!(r#"(?im)^\s*\w*(?:{keyword})\S*\s*[=:]\s*["']?({value}){AFTER}"#)
    };
    add("Facebook app", &named("facebook|fb", "[0-9a-f]{32}"), Some(3.6));
    add("Twitter", &named("twitter", "[0-9a-z]{18,25}"), Some(3.75));
    add("Twitter", &named("twitter", "[0-9a-z]{35,44}"), Some(4.0));
    add("GitHub", &named("github", "[0-9a-z]{35,40}"), Some(4.0));
    add("Square", &token("sq0(?:at|id)p-[0-9A-Za-z_-]{22}"), None);
    add("Square", &token("sq0csp-[0-9A-Za-z]{10}-[0-9A-Za-z]{6}_[0-9A-Za-z]{25}"), None);
    add("Stripe", &token("[rsp]k_(?:live|test)_([0-9A-Za-z]{24,34})"), Some(4.0));
    add("Slack token", &token("xox[baprs]-[0-9A-Za-z]{4,21}-[0-9A-Za-z]{4,21}"), None);
    add(
        "Slack webhook",
        r"\shttps://hooks\.slack\.com/services/T[0-9A-Za-z_]{8}/B[0-9A-Za-z_]{8}/[0-9A-Za-z_]{24}",
        None,
    );
    add("LinkedIn", &named("linkedin", "(?-i:[0-9a-z]{14})"), Some(3.5));
    add("LinkedIn", &named("linkedin", "[0-9a-z]{16}"), Some(3.75));
    add("Google", &token("AIza([0-9A-Za-z_-]{35})"), Some(4.0));
    add("SendGrid", &format!(r"(?m)\s(SG\.\w{{16,32}}\.\w{{16,64}}){AFTER}"), Some(4.0));
    add("Twilio", &named("twilio", "SK[0-9a-f]{32}"), Some(4.0));
    add("Heroku", &named("heroku", UUID), None);
    add("MailChimp", &named("mailchimp|mc", "[0-9a-f]{32}-us[0-9]{1,2}"), Some(4.0));
    add("Mailgun", &named("mailgun|mg", "key-[0-9a-z]{32}"), Some(4.0));
    add(
        "credential",
        &named(
            "passwd|password|api_key|apikey|secret",
            r#"[0-9a-z\-_.|!"$%&/()?^'\\+*@~\[\];]{20,120}"#,
        ),
        Some(4.0),
    );
    add(
        "password in text",
        r"(?i)(?:password|passwd|api_token)\S{0,32}\s*:\s*[0-9a-z/+]{16,40}\b",
        None,
    );
    patterns
});

/// The first variable that looks like a secret, and like which kind.
pub(super) fn find(env: &[Env]) -> Option<(&str, &'static str)> {
    env.iter().filter(|variable| !variable.value.is_empty()).find_map(|variable| {
        let text = format!("{} = {}\n", variable.name, variable.value);
        let pattern = PATTERNS.iter().find(|pattern| pattern.is_in(&text))?;
        Some((variable.name.as_str(), pattern.kind))
    })
}

impl Pattern {
    fn is_in(&self, text: &str) -> bool {
        let Some(least) = self.entropy else { return self.regex.is_match(text.as_bytes()) };
        self.regex.captures_iter(text.as_bytes()).any(|captures| {
            let part = captures.get(1).map_or(&[][..], |part| part.as_bytes());
            let entropy = entropy(part);
            !part.to_ascii_lowercase().windows(7).any(|word| word == b"example")
                && (least..=HIGHEST_ENTROPY).contains(&entropy)
        })
    }
}

/// Shannon's, in bits per character. Parts are ASCII.
#[allow(clippy::cast_precision_loss, reason = "parts are short")]
fn entropy(part: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in part {
        counts[usize::from(*byte)] += 1;
    }
    let length = part.len() as f64;
    let share = |count: &u32| f64::from(*count) / length;
    counts.iter().filter(|count| **count > 0).map(share).map(|p| -p * p.log2()).sum()
}

#[cfg(test)]
mod tests;

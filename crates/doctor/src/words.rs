//! Figures and names as a reader wants them.

/// `190,359`.
pub(crate) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 goroutine`, `2,573 goroutines`.
pub(crate) fn goroutines(n: u64) -> String {
    if n == 1 {
        "1 goroutine".to_owned()
    } else {
        format!("{} goroutines", thousands(n))
    }
}
